"""Prints a summary of a fleet.yaml: SKUs, limits, and keys without effect."""

from collections.abc import Mapping
from shutil import get_terminal_size
from typing import TextIO

from autoscaler.config import Configuration, not_in_force
from autoscaler.config.settings.fleet import ProviderSettings
from autoscaler.config.settings.sku import SkuSettings

_HEADS = ("SKU", "labels", "on", "ready", "at most")
_SHARES = (0.7, 0.45)
"""The largest shares of the width beside the numbers: the name's, and of the rest the labels'."""

_GAP = "  "


def summarise(configuration: Configuration, out: TextIO) -> None:
    """Print the SKUs as a table, the limits, and the keys without effect. Raises OSError.

    On a terminal each SKU has one line that fits; elsewhere names, labels and launch options are complete.
    """
    settings = configuration.settings
    rows = [_HEADS, *(_row(name, sku, settings.providers) for name, sku in settings.skus.items())]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADS))]
    if out.isatty():
        _fit(widths, get_terminal_size().columns)
    out.write(f"fleet {settings.fleet}\n")
    for row in rows:
        cells = (_cell(text, width) for text, width in zip(row, widths, strict=True))
        out.write(_GAP.join(cells).rstrip() + "\n")
    machines, dollars = settings.limits.machines, settings.limits.dollars_per_hour
    out.write(f"machines: {_cap(machines)}; dollars an hour: {_cap(dollars)}\n")
    for line in not_in_force(settings):
        out.write(f"not in force yet: {line}\n")
    out.flush()


def _fit(widths: list[int], columns: int) -> None:
    """Shorten names, labels and launch options so that a line fits; each keeps a few characters."""
    numbers = sum(widths[3:]) + len(_GAP) * (len(widths) - 1)
    least = len(_HEADS[1])
    left = max(columns - numbers, 3 * least)
    if sum(widths[:3]) <= left:
        return
    names = min(int(left * _SHARES[0]), left - 2 * least)
    widths[0] = min(widths[0], max(names, left - sum(widths[1:3])))
    left -= widths[0]
    widths[1] = min(widths[1], max(int(left * _SHARES[1]), left - widths[2], least))
    widths[2] = min(widths[2], left - widths[1])


def _cell(text: str, width: int) -> str:
    return text.ljust(width) if len(text) <= width else f"{text[: width - 1]}…"


def _row(
    name: str, sku: SkuSettings, providers: Mapping[str, ProviderSettings]
) -> tuple[str, str, str, str, str]:
    labels = ", ".join([*sku.labels, sku.os.value, sku.arch.value])
    launch_options = "; ".join(
        f"{option.provider}: {providers[option.provider].section.describe(option)}"
        for option in sku.launch_options
    )
    highest = max([sku.idle.minimum, *(entry.minimum for entry in sku.idle.schedule)])
    ready = str(sku.idle.minimum)
    ready += f" to {highest}" if highest > sku.idle.minimum else ""
    return name, labels, launch_options, ready, _cap(sku.max_machines)


def _cap(cap: float | None) -> str:
    return "no limit" if cap is None else f"{cap:,.10g}"
