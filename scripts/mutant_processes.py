"""Waits for a fork that runs tests, and ends the processes that its tests left."""

import contextlib
import os
import signal
import time
from pathlib import Path

import psutil

IDLE = 20.0
"""Real seconds without any work after which a test waits for something that never happens."""
WORKED = 2.0
"""CPU seconds that a process tree has used or waited for in that time, if it does anything."""
STOPPED = 5.0
"""Real seconds between two looks at a process after which this process was stopped, or starved."""
_GONE = (ProcessLookupError, FileNotFoundError, psutil.NoSuchProcess)


def wait(child: int, asleep: float) -> tuple[bool, bool]:
    """Wait for the process; whether it ended, and whether it or this process was stopped meanwhile.

    Gives up if its tree does nothing, or if it itself sleeps for so long. Time in which a process is
    stopped (SIGSTOP) does not count.
    """
    began = since = looked = time.monotonic()
    used = -1.0
    stopped = False
    pause = 0.005
    while True:
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None:
            return True, stopped
        time.sleep(pause)
        pause = min(pause * 1.3, 0.25)
        now = time.monotonic()
        if now - looked > STOPPED or _is_stopped(child):
            stopped = True
            began, since = began + now - looked, since + now - looked
        looked = now
        if now - since > IDLE:
            tree = [_worked(pid) for pid in (child, *_below(child))]
            since = now
            if 0.0 <= sum(tree) - used < WORKED or now - began - tree[0] > asleep:
                return False, stopped
            used = sum(tree)


def _is_stopped(process: int) -> bool:
    with contextlib.suppress(*_GONE):
        return psutil.Process(process).status() == psutil.STATUS_STOPPED
    return False


def _below(process: int) -> list[int]:
    with contextlib.suppress(*_GONE):
        return [one.pid for one in psutil.Process(process).children(recursive=True)]
    return []


def _worked(process: int) -> float:
    """CPU seconds that a process used, with those that it waited for a CPU."""
    with contextlib.suppress(*_GONE):
        ran, waited, _ = Path(f"/proc/{process}/schedstat").read_text().split()
        return (int(ran) + int(waited)) / 1e9
    return 0.0


def end_all() -> None:
    """End what a test has left: as a subreaper, this process is the parent of all of that."""
    while left := _below(os.getpid()):
        for one in left:
            with contextlib.suppress(*_GONE):
                os.kill(one, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, 0)
