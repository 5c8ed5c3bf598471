"""Tables for a terminal. Output to a pipe has full words, and one line for each row."""

import sys
from collections.abc import Collection, Iterable, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from autoscaler.operator_commands.options import plain

_PIPE_WIDTH = 10_000
_GAP = "  "


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], long: Collection[str]
) -> None:
    """Print rows below their column names.

    On a terminal that is too narrow, the columns in `long` have a second line for each row, so that words stay
    whole: an ID in two pieces cannot be copied. The line with the first column comes first.
    """
    texts = [list(columns), *([plain(cell) for cell in row] for row in rows)]
    widths = [max(map(cell_len, column)) for column in zip(*texts, strict=True)]
    width = None if sys.stdout.isatty() else _PIPE_WIDTH
    console = Console(file=sys.stdout, width=width, color_system=None, highlight=False)
    if sum(widths) + len(_GAP) * (len(widths) - 1) > console.width:
        _print_in_pairs(console, texts, widths, [name in long for name in columns])
        return
    table = Table(box=None, pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(column)
    for cells in texts[1:]:
        table.add_row(*map(Text, cells))
    console.print(table)


def _print_in_pairs(
    console: Console, texts: list[list[str]], widths: list[int], is_long: list[bool]
) -> None:
    """Print two lines for each row: the cells that are not long below each other, and the long ones."""
    for cells in texts:
        kinds = list(zip(cells, widths, is_long, strict=True))
        short = _GAP.join(
            text + " " * (width - cell_len(text)) for text, width, far in kinds if not far
        )
        lines = [short.rstrip(), _GAP.join(text for text, _, far in kinds if far and text)]
        first, second = reversed(lines) if is_long[0] else lines
        console.print(Text(first, overflow="fold"))
        if second:
            console.print(Padding(Text(second, overflow="fold"), (0, 0, 0, 2), expand=False))
