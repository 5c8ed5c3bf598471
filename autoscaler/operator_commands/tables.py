"""Tables and times for a terminal. Output to a pipe has full words and no line breaks inside a cell."""

import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from rich.console import Console
from rich.table import Table
from rich.text import Text

_PIPE_WIDTH = 10_000
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400


def plain(text: object) -> str:
    """Replace unprintable characters, which names may contain and a terminal would interpret."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(text))


def duration(seconds: float | None) -> str:
    """Return a time span in its two largest units: `45s`, `12m05s`, `3h20m`, `2d04h`. Empty for None."""
    if seconds is None:
        return ""
    whole = max(0, round(seconds))
    if whole < _MINUTE:
        return f"{whole}s"
    if whole < _HOUR:
        return f"{whole // _MINUTE}m{whole % _MINUTE:02}s"
    if whole < _DAY:
        return f"{whole // _HOUR}h{whole % _HOUR // _MINUTE:02}m"
    return f"{whole // _DAY}d{whole % _DAY // _HOUR:02}h"


def moment(at: float | None) -> str:
    """Return a moment (Unix seconds) as `2026-11-24 03:52:00Z`. Empty for None."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}Z" if at is not None else ""


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows below their column names. On a terminal, long cells continue on the next line."""
    table = Table(box=None, pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(plain(cell)) for cell in row))
    width = None if sys.stdout.isatty() else _PIPE_WIDTH
    Console(file=sys.stdout, width=width, color_system=None, highlight=False).print(table)
