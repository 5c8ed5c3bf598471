"""Ends every process of a lab machine, by session and descent, whichever user runs it.

Reads only files of /proc that every user may read, so that it works in a container without ptrace.
"""

import os
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


class _Process(NamedTuple):
    pid: int
    parent: int
    session: int


def end_sessions(sessions: Iterable[int]) -> None:
    """Kill every process of these sessions and their descendants. On return, none is left.

    Stops the processes before it kills them: a stopped process cannot start another one.
    """
    wanted = {session for session in sessions if session > 1 and session != os.getsid(0)}
    stopped: set[int] = set()
    while fresh := _members(wanted, stopped) - stopped:
        _send(fresh, signal.SIGSTOP)
        stopped |= fresh
    _send(stopped, signal.SIGKILL)


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
        state, parent, _group, session = text.rpartition(")")[2].split()[:4]
        if state not in "ZX":
            found.append(_Process(int(folder.name), int(parent), int(session)))
    return found
