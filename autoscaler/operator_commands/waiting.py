"""Says what a command waits for, so that an operator does not take it for stuck."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer

import typer

_SILENT = 1.0
"""Seconds after which the line is printed."""


@contextmanager
def waiting_for(what: str) -> Iterator[None]:
    """Print after a second what the command waits for, unless it goes on before. Only if stderr is a terminal.

    A log and a mail of cron have no use for the line, and stdout is for the answer.
    """
    if not sys.stderr.isatty():
        yield
        return
    timer = Timer(_SILENT, typer.echo, [f"waiting for {what} ..."], {"err": True})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
