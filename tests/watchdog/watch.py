"""A thread that ends what the main thread waits for when a phase has waited too long."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from types import FrameType

from tests.watchdog.children import Reaper, children, kill
from tests.watchdog.clock import counted, host_share
from tests.watchdog.report import write_report

_TICK = 0.25
"""Seconds. An adopted orphan that ended stays a zombie for two ticks."""

_STATUS = 3
"""The exit status of pytest after an internal error."""


class WaitedTooLongError(KeyboardInterrupt):
    """Interrupts the main thread. asyncio lets only this class and SystemExit leave a running loop."""


@dataclass(slots=True)
class Phase:
    """What the main thread does now. `spared` returns the processes that the phase does not own."""

    name: str
    limit: float
    spared: Callable[[], Collection[int]]
    last: bool = False
    """True at the end of the session: no test can fail any more."""
    spent: float = 0.0
    report: str = ""
    """Not empty after the limit."""
    interrupted: float = 0.0
    """How much was spent at the last interruption."""


class Watch:
    """Watches one phase at a time. `stderr` is a file descriptor; `kept` returns children not to reap."""

    def __init__(self, grace: float, stderr: int, kept: Callable[[], Collection[int]]) -> None:
        self._grace = grace
        self._stderr = stderr
        self._kept = kept
        self._reaper = Reaper()
        self._phase: Phase | None = None
        self._closed = threading.Event()
        self._before = signal.signal(signal.SIGALRM, self._interrupt)
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)
        self._thread.start()

    def begin(self, phase: Phase) -> Phase:
        """Watch this phase, and no other."""
        self._phase = phase
        return phase

    def end(self) -> None:
        """Watch no phase."""
        self._phase = None

    def close(self) -> None:
        """Stop for good. Idempotent."""
        self.end()
        self._closed.set()
        signal.signal(signal.SIGALRM, self._before)

    def _run(self) -> None:
        before = time.monotonic()
        while not self._closed.wait(_TICK):
            now = time.monotonic()
            phase = self._phase
            if phase is not None:
                phase.spent += counted(now - before, _TICK, host_share())
                if phase.spent > phase.limit:
                    self._stop(phase)
            self._reaper.reap(self._kept())
            before = now

    def _stop(self, phase: Phase) -> None:
        """Make a phase end: kill, then interrupt several times, then exit."""
        owned = children().difference(phase.spared())
        if not phase.report:
            phase.report = f"{phase.name} waited for more than {phase.limit:g} s"
            # Without a report, the phase must end, too: objects of the test may not be readable.
            with contextlib.suppress(Exception):
                phase.report = write_report(phase.name, phase.limit, owned)
            phase.interrupted = phase.spent
        kill(owned)
        if phase.last or phase.spent > phase.limit + self._grace:
            # The reader of stderr may have ended.
            with contextlib.suppress(OSError):
                os.write(self._stderr, f"\n{phase.report}\npytest is ended.\n".encode())
            os._exit(_STATUS)
        if phase.spent > phase.interrupted + self._grace / 5:
            phase.interrupted = phase.spent
            # The phase may end meanwhile: `_interrupt` looks again.
            with contextlib.suppress(ProcessLookupError):
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        phase = self._phase
        if phase is not None and phase.report:
            raise WaitedTooLongError(phase.report)
