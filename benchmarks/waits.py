"""Summarizes durations in a few numbers. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from autoscaler.model.identifiers import Seconds


@dataclass(frozen=True, slots=True)
class Waits:
    """The waits of a number of jobs, in seconds."""

    jobs: int
    p50: Seconds
    p99: Seconds
    longest: Seconds


def waits_of(waits: Sequence[Seconds]) -> Waits:
    """Return the percentiles of these waits. Each is one of them; all are zero if there are none."""
    ordered = sorted(waits) or [0.0]
    p50, p99 = (ordered[min(len(ordered) - 1, int(len(ordered) * part))] for part in (0.5, 0.99))
    return Waits(len(waits), round(p50, 1), round(p99, 1), round(ordered[-1], 1))
