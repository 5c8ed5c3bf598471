"""What a fleet.yaml comes to, as `check` shows it to whoever wrote it. Decides nothing."""

from typing import TextIO

from rich import box
from rich.console import Console
from rich.table import Table

from autoscaler.config import Configuration, not_in_force
from autoscaler.config.sku_settings import SkuSettings

MAX_UNWRAPPED = 32
"""SKU names up to this length stay on one line."""


def summarise(configuration: Configuration, out: TextIO) -> None:
    """The SKUs as a table, the caps, and the keys that are not in force yet. Raises OSError."""
    settings = configuration.settings
    table = Table(title=f"fleet {settings.fleet}", title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("SKU", overflow="fold", no_wrap=max(map(len, settings.skus)) <= MAX_UNWRAPPED)
    table.add_column("labels", overflow="fold")
    table.add_column("ladder", overflow="fold")
    table.add_column("parked", no_wrap=True)
    table.add_column("at most", no_wrap=True)
    for name, sku in settings.skus.items():
        table.add_row(*_row(name, sku))
    Console(file=out, markup=False, highlight=False, emoji=False).print(table)
    machines, dollars = settings.limits.machines, settings.limits.dollars_per_hour
    out.write(f"machines: {_cap(machines)}; dollars an hour: {_cap(dollars)}\n")
    for line in not_in_force(settings):
        out.write(f"not in force yet: {line}\n")
    out.flush()


def _row(name: str, sku: SkuSettings) -> tuple[str, str, str, str, str]:
    labels = ", ".join([*sku.labels, sku.os.value, sku.arch.value])
    ladder = "\n".join(
        f"{rung.provider}: {', '.join(rung.instance_types)} ({', '.join(rung.capacity)})"
        if rung.instance_types
        else f"{rung.provider}: pod"
        for rung in sku.ladder
    )
    highest = max([sku.idle.minimum, *(entry.minimum for entry in sku.idle.schedule)])
    parked = str(sku.idle.minimum)
    parked += f" to {highest}" if highest > sku.idle.minimum else ""
    return name, labels, ladder, parked, _cap(sku.max_machines)


def _cap(cap: float | None) -> str:
    return "no cap" if cap is None else f"{cap:,.10g}"
