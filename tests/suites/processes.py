"""Starts the parts of a suite, several at once, and ends every process that they start."""

import contextlib
import ctypes
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import psutil

from tests.suites.parts import Part

SILENCE = 1800.0
"""Maximum of real seconds in which a part prints nothing. A phase of a test ends after 25 minutes at most
(tests/watchdog), and the compilers of a build print nothing for minutes."""

_GRACE = 30.0
"""Seconds that a part has to end after SIGINT, in which pytest stops the servers of its fixtures."""

_LOOK_EVERY = 0.1
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def prepare() -> None:
    """Make this process the parent of all orphans below it, and end it if its own parent (`make`) is killed."""
    library = ctypes.CDLL(None, use_errno=True)
    library.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    library.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a part ended: exit `status` (negative: a signal), real `seconds`, and CPU seconds of its processes.

    `why` says why the runner ended the part, or is empty.
    """

    part: Part
    status: int
    seconds: float
    cpu: float
    why: str = ""


@dataclass(slots=True)
class _Running:
    part: Part
    process: subprocess.Popen[bytes]
    log: Path
    began: float
    printed: int = 0
    printed_at: float = 0.0
    why: str = ""


@dataclass
class Runner:
    """Runs parts as `command(part)`, with their output in `logs`. Call `prepare` before.

    `at_once` is the maximum number of parts that run at the same time.
    """

    command: Callable[[Part], Sequence[str]]
    logs: Path
    at_once: int
    silence: float = SILENCE
    stopped_by: int = 0
    """The number of the signal that ended the run, or 0."""
    _running: dict[int, _Running] = field(default_factory=dict)

    def run(self, parts: Sequence[Part], each: Callable[[Ended], None]) -> None:
        """Run the parts and call `each` after each of them. Returns early after SIGINT, SIGTERM or SIGHUP.

        No process that a part started is left then.
        """
        waiting, passed = list(parts), set[str]()
        names = {part.name for part in parts}
        with self._signals():
            try:
                while (waiting or self._running) and not self.stopped_by:
                    while (ready := self._next(waiting, passed, names)) is not None:
                        waiting.remove(ready)
                        self._start(ready)
                    if not self._running:
                        return
                    for ended in self._reap():
                        passed |= {ended.part.name} if ended.status == 0 else set()
                        each(ended)
                    self._end_silent()
                    time.sleep(_LOOK_EVERY)
            finally:
                # A list: all processes are ended even if `each` fails, as with a closed stdout.
                for ended in list(self._end_all()):
                    each(ended)

    def _next(self, waiting: list[Part], passed: set[str], names: set[str]) -> Part | None:
        """Return the next part that may start now."""
        running = [one.part for one in self._running.values()]
        if len(running) >= self.at_once or any(part.alone for part in running):
            return None
        for part in waiting:
            if part.alone and running:
                return None
            if part.after not in names or part.after in passed:
                return part
        return None

    def _start(self, part: Part) -> None:
        log = self.logs / f"{part.name}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                self.command(part),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # A session of its own would make `nice` useless: Linux shares processors among sessions first.
                process_group=0,
            )
        now = time.monotonic()
        self._running[process.pid] = _Running(part, process, log, now, printed_at=now)

    def _reap(self) -> Iterator[Ended]:
        """Yield the parts that have ended since the last call. Reaps orphans of parts, too."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if (one := self._running.pop(pid, None)) is not None:
                code = os.waitstatus_to_exitcode(status)
                # The shell of a part that is killed may go on to its end before it is killed, too.
                one.process.returncode = code = code or int(one.why != "")
                seconds = time.monotonic() - one.began
                yield Ended(one.part, code, seconds, usage.ru_utime + usage.ru_stime, one.why)

    def _end_silent(self) -> None:
        now = time.monotonic()
        for one in self._running.values():
            printed = one.log.stat().st_size
            if printed != one.printed:
                one.printed, one.printed_at = printed, now
            elif now - one.printed_at > self.silence and not one.why:
                processes = _words(one.process.pid)
                one.why = f"it printed nothing for {self.silence:.0f} s; its processes: {processes}"
                _kill(_tree(one.process.pid))

    def _end_all(self) -> Iterator[Ended]:
        """End the parts that still run, then every process that any part left."""
        for one in self._running.values():
            one.why = one.why or "it was stopped"
            with contextlib.suppress(ProcessLookupError):
                os.killpg(one.process.pid, signal.SIGINT)
        until = time.monotonic() + _GRACE
        while self._running and time.monotonic() < until:
            yield from self._reap()
            time.sleep(_LOOK_EVERY)
        until = time.monotonic() + _GRACE
        while (left := psutil.Process().children(recursive=True)) and time.monotonic() < until:
            _kill(left)
            yield from self._reap()

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Note SIGINT, SIGTERM and SIGHUP."""

        def note(number: int, _frame: FrameType | None) -> None:
            self.stopped_by = self.stopped_by or number

        numbers = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as under nohup
            numbers.append(signal.SIGHUP)
        before = {number: signal.signal(number, note) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _tree(pid: int) -> list[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        return [*root.children(recursive=True), root]
    return []


def _kill(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    time.sleep(_LOOK_EVERY / 10)


def _words(pid: int) -> str:
    """Return the command lines of a part's processes."""
    found = []
    for process in _tree(pid):
        with contextlib.suppress(psutil.NoSuchProcess):
            found.append(shlex.join(process.cmdline())[:200])
    return "; ".join(found)
