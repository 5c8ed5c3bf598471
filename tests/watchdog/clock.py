"""Counts how long a test has waited: real time, but less of it while the host is busy."""

import os
from pathlib import Path

LEAST_SHARE = 0.2
"""The least that a second counts, so that a wait also ends on an overloaded host."""

_LOAD = Path("/proc/loadavg")


def counted(seconds: float, tick: float, share: float) -> float:
    """Return how many of these real seconds count. A tick that comes late counts as one tick.

    While the host stands still or runs others, no thread of this process runs: its ticks come late.
    """
    return min(seconds, tick) * share


def host_share() -> float:
    """Return the share of a processor that a process gets now: 1 on a quiet host."""
    try:
        # proc(5): the fourth field is "runnable/all".
        runnable = int(_LOAD.read_text().split()[3].partition("/")[0])
    except (OSError, IndexError, ValueError):
        return 1.0
    return share_of(runnable, os.cpu_count() or 1)


def share_of(runnable: int, processors: int) -> float:
    """Return the share of a processor for each of the runnable threads."""
    return max(LEAST_SHARE, min(1.0, processors / max(1, runnable)))
