"""The processes below the runner, as Linux lists them in /proc."""

from __future__ import annotations

import os

from autoscaler.agent.limits import MOST_BODY, MOST_LINE, MOST_PROCESSES


def process_name(pid: int) -> str:
    """Return the kernel's name of a process (its program, 15 characters), or an empty text."""
    try:
        with open(f"/proc/{pid}/comm", encoding="ascii", errors="replace") as file:
            return file.read(64).strip()
    except OSError:
        return ""


def parent_of(pid: int) -> int | None:
    """Return a process's parent, or None if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read(MOST_LINE).rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[1]) if len(fields) > 1 else None


def descendants(root: int) -> list[int]:
    """Return the processes below this one, nearest first, up to a bound."""
    found: list[int] = []
    level = [root]
    while level and len(found) < MOST_PROCESSES:
        level = [child for pid in level for child in children_of(pid)][:MOST_PROCESSES]
        found.extend(level)
    return found


def children_of(pid: int) -> list[int]:
    """Return a process's children. The kernel lists them by thread (CONFIG_PROC_CHILDREN)."""
    children: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return children
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as file:
                children.extend(int(word) for word in file.read(MOST_BODY).split()[:MOST_PROCESSES])
        except FileNotFoundError:
            if os.path.exists(f"/proc/{pid}/task/{thread}/stat"):
                return children_by_parent(pid)
        except OSError:
            continue
    return children


def children_by_parent(pid: int) -> list[int]:
    """Return a process's children by reading every process, for kernels without the list."""
    every = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [other for other in every if parent_of(other) == pid]
