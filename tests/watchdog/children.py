"""The processes that this process started, and those that lost their parent below it."""

import contextlib
import ctypes
import functools
import os
import subprocess
import sys
import time
import weakref
from collections.abc import Collection
from multiprocessing import popen_fork
from pathlib import Path
from typing import Any

import psutil

_TASKS = Path("/proc/self/task")
_PR_SET_CHILD_SUBREAPER = 36

Started = subprocess.Popen[bytes] | popen_fork.Popen
"""An object that waits for a process; asyncio has a `subprocess.Popen` of each of its processes, too."""

_started: dict[int, "weakref.ref[Started]"] = {}
_held: list[Started] = []


def adopt_orphans() -> None:
    """Become the parent of every process below this one whose own parent ends (prctl(2))."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def children() -> frozenset[int]:
    """Return the process ids of all children, zombies included."""
    found: set[int] = set()
    # Each thread has its own children (proc(5)), and a thread may end meanwhile. A test may leave no free file
    # descriptor for a while.
    with contextlib.suppress(OSError):
        for task in os.scandir(_TASKS):
            with contextlib.suppress(OSError):
                found.update(map(int, Path(task.path, "children").read_text().split()))
    return frozenset(found)


def is_running(pid: int) -> bool:
    """Return False for a process that has ended, and for a zombie."""
    return _state(pid) not in ("", "Z", "X")


def strays(spared: Collection[int]) -> list[int]:
    """Return the running children without `spared` and the tracker that multiprocessing keeps."""
    return [
        pid
        for pid in sorted(children().difference(spared))
        if is_running(pid) and "multiprocessing.resource_tracker" not in command(pid)
    ]


def command(pid: int) -> str:
    """Return the command line of a process, or an empty string if it has ended."""
    try:
        return " ".join(psutil.Process(pid).cmdline()) or psutil.Process(pid).name()
    except psutil.Error:
        return ""


def describe(pids: Collection[int]) -> str:
    """Return a line for each of these processes and their descendants."""
    return "\n".join(f"  {one.pid}: {command(one.pid)}" for one in tree(pids))


def tree(pids: Collection[int]) -> list[psutil.Process]:
    """Return these processes and all their descendants, except for zombies."""
    found: list[psutil.Process] = []
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            first = psutil.Process(pid)
            found += [first, *first.children(recursive=True)]
    return [one for one in found if is_running(one.pid)]


def kill(pids: Collection[int]) -> None:
    """Kill these processes and all their descendants. Returns at once."""
    for process in tree(pids):
        with contextlib.suppress(psutil.Error):
            process.kill()


def end(pids: Collection[int], patience: float) -> None:
    """Kill these processes and all their descendants, and wait until they have ended."""
    until = time.monotonic() + patience
    while running := [pid for pid in pids if is_running(pid)]:
        if time.monotonic() > until:
            return
        kill(running)
        time.sleep(0.01)


class Reaper:
    """Takes the exit statuses of adopted orphans. Their own parents would have done so."""

    def __init__(self) -> None:
        self._seen: set[int] = set()

    def reap(self, spared: Collection[int]) -> None:
        """Reap the orphans that were zombies at the last call too: no `wait` has taken them since."""
        zombies = {pid for pid in children().difference(spared) if _state(pid) == "Z"}
        waiting = zombies & self._seen
        self._seen = zombies
        for pid in waiting - started(waiting) if waiting else ():
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def note_started() -> None:
    """Note from now on which processes an object of this process waits for.

    `gc.get_objects()` would know, too, but a thread must not call it: it makes a `tuple()` that another thread
    computes fail with a SystemError before Python 3.14 (python/cpython#39117, #127758).
    """
    for kind in (subprocess.Popen, popen_fork.Popen):
        kind.__init__ = _noting(kind.__init__)  # type: ignore[method-assign]


def _noting(original: Any) -> Any:
    @functools.wraps(original)
    def begin(self: Any, *arguments: Any, **named: Any) -> None:
        original(self, *arguments, **named)
        _started[self.pid] = weakref.ref(self)
        _held.append(self)

    return begin


def forget_ended() -> None:
    """Forget the objects of processes. Until then a report can name the status of each process."""
    _held.clear()
    for pid, one in list(_started.items()):
        if one() is None:
            _started.pop(pid, None)


def started(pids: Collection[int]) -> set[int]:
    """Return those of these children that an object of this process waits for."""
    found = {pid: _started[pid]() for pid in pids if pid in _started}
    return {pid for pid, one in found.items() if one is not None and one.returncode is None}


def popen_objects() -> list["subprocess.Popen[bytes]"]:
    """Return the `Popen` objects of this test, and those that something still refers to."""
    found = (one() for one in list(_started.values()))
    return [one for one in found if isinstance(one, subprocess.Popen)]


def _state(pid: int) -> str:
    try:
        # The name is in brackets, and may have any bytes (proc(5)).
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0].decode()
    except (OSError, IndexError):
        return ""
