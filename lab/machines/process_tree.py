"""Ends every process of a lab machine, by session and descent, whichever user runs it.

Reads only files of /proc that every user may read, so that it works in a container without ptrace.
"""

import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

_PAUSE = 0.002
"""Seconds between two looks at whether killed processes have ended."""


class _Process(NamedTuple):
    """A process. `started` is in clock ticks since the host's start: a later process can have its number."""

    pid: int
    parent: int
    session: int
    started: int


def end_sessions(sessions: Iterable[int]) -> None:
    """Kill every process of these sessions and their descendants, and wait until they have ended.

    Stops the processes before it kills them: a stopped process cannot start another one. A killed one still
    runs until the kernel has freed its memory, and keeps its files open. Blocks: call it in a thread.
    """
    wanted = {session for session in sessions if session > 1 and session != os.getsid(0)}
    stopped: set[int] = set()
    while fresh := _members(wanted, stopped) - stopped:
        _send(fresh, signal.SIGSTOP)
        stopped |= fresh
    killed = {(one.pid, one.started) for one in _processes() if one.pid in stopped}
    _send(stopped, signal.SIGKILL)
    while killed & {(one.pid, one.started) for one in _processes()}:
        time.sleep(_PAUSE)


def members(sessions: Iterable[int]) -> set[int]:
    """Return the living processes of these sessions, and their descendants."""
    return _members(set(sessions), set())


def _members(sessions: set[int], known: set[int]) -> set[int]:
    processes = _processes()
    found = {process.pid for process in processes if process.session in sessions} | known
    while True:
        below = {process.pid for process in processes if process.parent in found} - found
        if not below:
            return found
        found |= below


def _send(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def _processes() -> list[_Process]:
    """Return every process that is not a zombie (proc(5), /proc/PID/stat)."""
    found = []
    for folder in os.scandir("/proc"):
        if not folder.name.isdigit():
            continue
        try:
            text = Path(folder.path, "stat").read_text(encoding="utf-8", errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        fields = text.rpartition(")")[2].split()
        state, parent, session, started = fields[0], fields[1], fields[3], fields[19]
        if state not in "ZX":
            found.append(_Process(int(folder.name), int(parent), int(session), int(started)))
    return found
