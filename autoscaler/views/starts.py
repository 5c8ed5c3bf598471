"""How many jobs started, and how many of them later than their objective."""

from collections.abc import Mapping
from dataclasses import dataclass

from autoscaler.model.wait_objectives import WaitObjective


@dataclass(frozen=True, slots=True)
class Starts:
    """How many jobs started in a time span, and how many of them later than their objective.

    `target` is the share that should start in time.
    """

    started: int = 0
    late: int = 0
    target: float = WaitObjective().target

    @property
    def in_time(self) -> float | None:
        """Return the share of jobs that started within the objective; None if no job started."""
        return (self.started - self.late) / self.started if self.started else None

    @property
    def meets_target(self) -> bool:
        """Return True if enough jobs started in time, or none started."""
        share = self.in_time
        return share is None or share >= self.target


def total(starts: Mapping[str, Starts]) -> Starts:
    """Return the starts of all SKUs together. Their target is the mean, weighted by the starts."""
    of = [one for one in starts.values() if one.started]
    started = sum(one.started for one in of)
    late = sum(one.late for one in of)
    if not of:
        return Starts()
    if len({one.target for one in of}) == 1:
        return Starts(started, late, of[0].target)
    return Starts(started, late, sum(one.target * one.started for one in of) / started)
