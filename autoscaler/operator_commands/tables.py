"""Prints tables and sentences for a terminal: words stay whole, and so do IDs, which operators copy.

Output to a pipe has one line for each row of a table.
"""

import sys
from collections.abc import Collection, Iterable, Sequence
from textwrap import wrap

import typer
from rich.cells import cell_len
from rich.console import Console
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
    whole: an ID in two pieces cannot be copied. If the first line still does not fit, its last columns move to
    the second one, too. The line with the first column comes first.
    """
    texts = [list(columns), *([plain(cell) for cell in row] for row in rows)]
    widths = [max(map(cell_len, column)) for column in zip(*texts, strict=True)]
    console = _console()
    if _line_width(widths) > console.width:
        _print_in_pairs(texts, widths, _moved(columns, widths, long, console.width))
        return
    table = Table(box=None, pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(column)
    for cells in texts[1:]:
        table.add_row(*map(Text, cells))
    console.print(table)


def print_line(text: str, indent: str = "") -> None:
    """Print a sentence. A terminal that is too narrow gets further lines, of whole words.

    A word that is longer than the terminal is left to it: it copies what it wraps as one word.
    """
    width = _console().width
    lines = wrap(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
        replace_whitespace=False,
    )
    typer.echo("\n".join(lines))


def _console() -> Console:
    width = None if sys.stdout.isatty() else _PIPE_WIDTH
    return Console(file=sys.stdout, width=width, color_system=None, highlight=False)


def _line_width(widths: Sequence[int]) -> int:
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def _moved(
    columns: Sequence[str], widths: Sequence[int], long: Collection[str], most: int
) -> list[bool]:
    """Return for each column whether it moves to the second line."""
    moved = [name in long for name in columns]
    short = [index for index, far in enumerate(moved) if not far]
    while len(short) > 1 and _line_width([widths[index] for index in short]) > most:
        moved[short.pop()] = True
    return moved


def _print_in_pairs(texts: list[list[str]], widths: list[int], is_long: list[bool]) -> None:
    """Print two lines for each row: the cells that are not long below each other, and the long ones."""
    for cells in texts:
        kinds = list(zip(cells, widths, is_long, strict=True))
        short = _GAP.join(
            text + " " * (width - cell_len(text)) for text, width, far in kinds if not far
        )
        lines = [short.rstrip(), _GAP.join(text for text, _, far in kinds if far and text)]
        first, second = reversed(lines) if is_long[0] else lines
        print_line(first)
        if second:
            print_line(second, indent="  ")
