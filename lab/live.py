"""Shows the progress of a replay in 80 columns: a live table on a terminal, lines of text elsewhere."""

import time
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from autoscaler.model.wording import counted
from lab.watch import Progress, SkuProgress

PLAIN_EVERY = 5.0
"""Real seconds between two reports in plain text."""

UNCHANGED_EVERY = 20.0
"""Real seconds between two reports that are the same, to show that the replay goes on."""

_COLUMNS = ("waiting", "booting", "ready", "running")


class Screen(Protocol):
    """Shows progress. Use it as a context manager."""

    def show(self, progress: Progress, *, last: bool) -> None:
        """Show progress. It may be skipped shortly after another one, unless it is the `last`."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


def screen(console: Console) -> Screen:
    """Return the screen for this console: a live table on a terminal, otherwise lines of text."""
    return _Terminal(console) if console.is_terminal else _Lines(console)


def clock(seconds: float) -> str:
    """Return lab time as `m:ss`, or `h:mm:ss` from an hour on."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class _Terminal:
    def __init__(self, console: Console) -> None:
        self._began = time.monotonic()
        self._console = console
        self._live = Live(console=console, auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.__exit__(kind, error, trace)

    def show(self, progress: Progress, *, last: bool) -> None:  # noqa: ARG002 - shows every update
        # Above the table, which stays below.
        _print_steps(self._console, progress)
        real = time.monotonic() - self._began
        head = Text(
            f"{clock(progress.seconds)} of lab time in {real:.0f} s; "
            f"{counted(progress.machines, 'machine')} at EC2"
            + ("" if progress.pods is None else f", {counted(progress.pods, 'pod')}"),
            style="bold",
        )
        self._live.update(Group(head, self._table(progress)), refresh=True)

    def _table(self, progress: Progress) -> Table:
        table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, show_footer=True)
        total = progress.total
        table.add_column("SKU", "all", overflow="fold")
        for name in _COLUMNS:
            table.add_column(name, _shown(getattr(total, name)), justify="right", no_wrap=True)
        table.add_column("done", _done(total), justify="right", no_wrap=True)
        for sku, row in progress.skus.items():
            numbers = (_shown(getattr(row, name)) for name in _COLUMNS)
            table.add_row(sku, *numbers, _done(row), style=_style(row))
        return table


class _Lines:
    """Prints each step at once, and every few seconds the progress of all SKUs and of each that changed."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._next = time.monotonic()
        self._shown: dict[str, str] = {}
        self._words, self._repeat = "", self._next

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None

    def show(self, progress: Progress, *, last: bool) -> None:
        _print_steps(self._console, progress)
        if time.monotonic() < self._next and not last:
            return
        self._next = time.monotonic() + PLAIN_EVERY
        words = _words(progress.total) + _left(progress)
        if words == self._words and time.monotonic() < self._repeat and not last:
            return
        self._words, self._repeat = words, time.monotonic() + UNCHANGED_EVERY
        self._print(f"{clock(progress.seconds)} lab time, all: {words}")
        for sku, row in progress.skus.items():
            words = _words(row)
            if words != self._shown.get(sku, _words(SkuProgress(0, 0, 0, 0, 0, row.jobs))):
                self._print(f"  {sku}: {words}")
            self._shown[sku] = words

    def _print(self, line: str) -> None:
        self._console.print(line, soft_wrap=True)


def _print_steps(console: Console, progress: Progress) -> None:
    lines = [f"{clock(progress.seconds):>7}  {step}" for step in progress.steps]
    if lines:
        console.print("\n".join(lines), soft_wrap=True)


def _words(row: SkuProgress) -> str:
    counts = [f"{getattr(row, name)} {name}" for name in _COLUMNS if getattr(row, name)]
    return ", ".join([*counts, f"{_done(row)} done"])


def _left(progress: Progress) -> str:
    """Return the number of machines that are left once every job is done, in words."""
    total, machines = progress.total, progress.machines + (progress.pods or 0)
    if total.done < total.jobs or not machines:
        return ""
    return f", {machines} machine{'s' if machines > 1 else ''} left"


def _shown(count: int) -> str:
    return str(count) if count else "·"


def _done(row: SkuProgress) -> str:
    return f"{row.done}/{row.jobs}"


def _style(row: SkuProgress) -> str:
    if row.done == row.jobs:
        return "green"
    return "" if row.waiting or row.running or row.booting or row.ready else "dim"
