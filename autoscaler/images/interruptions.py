"""Signals that stop a command, while it has a machine or a program of which it must dispose."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, `kill`, and the end of the terminal."""

_STEP = 0.2
"""Seconds after which a sleep notices a signal."""


@contextmanager
def caught(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Call `handler` for each of SIGNALS, except those that this process ignores, as under `nohup`."""
    before = {
        one: signal.signal(one, handler)
        for one in SIGNALS
        if signal.getsignal(one) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for one, earlier in before.items():
            signal.signal(one, earlier)


@contextmanager
def interruptible_sleep() -> Iterator[Callable[[float], None]]:
    """Yield a function that sleeps for a number of seconds. A signal ends a sleep with KeyboardInterrupt.

    A signal at another time ends the next sleep, and further signals do nothing. So no signal cuts off the
    launch of a machine or its termination.
    """
    received = False

    def note(_number: int, _frame: FrameType | None) -> None:
        nonlocal received
        received = True

    def sleep(seconds: float) -> None:
        end = time.monotonic() + seconds
        while not received and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, _STEP))
        if received:
            raise KeyboardInterrupt

    with caught(note):
        yield sleep
