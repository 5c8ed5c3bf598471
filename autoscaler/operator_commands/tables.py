"""Tables for a terminal. Output to a pipe has full words and no line breaks inside a cell."""

import sys
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

_PIPE_WIDTH = 10_000


def plain(text: object) -> str:
    """Replace unprintable characters, which names may contain and a terminal would interpret."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(text))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows below their column names. On a terminal, long cells continue on the next line."""
    table = Table(box=None, pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(plain(cell)) for cell in row))
    width = None if sys.stdout.isatty() else _PIPE_WIDTH
    Console(file=sys.stdout, width=width, color_system=None, highlight=False).print(table)
