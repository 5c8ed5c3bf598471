"""Says what a command waits for, so that an operator does not take it for stuck, and lets Ctrl-C end it."""

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from threading import Thread, Timer
from typing import TypeVar

import typer

_Result = TypeVar("_Result")

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


def interruptible(work: Callable[[], _Result]) -> _Result:
    """Return what `work` returns, or raise what it raises. Ctrl-C ends the wait at once.

    Python raises KeyboardInterrupt only after a call of the C library has returned. A look-up of a name returns
    when no name server has answered for seconds.
    """
    outcome: Future[_Result] = Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:  # noqa: BLE001 - the main thread raises it
            outcome.set_exception(error)

    # In a thread of its own. A daemon: the end of the process does not wait for it.
    Thread(target=run, daemon=True).start()
    return outcome.result()
