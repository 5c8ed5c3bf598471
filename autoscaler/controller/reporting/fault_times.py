"""Remembers faults from one look at the fleet to the next: since when each is there, and how it develops."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from autoscaler.model.identifiers import Instant, Seconds
from autoscaler.model.reasons.faults import Fault, Trend

KEPT: Seconds = 300.0
"""How long a fault that is gone is remembered: one that comes and goes is one fault, with one beginning."""

COMPARED: Seconds = 300.0
"""The trend compares the jobs of now with those of so long ago, or of the fault's beginning."""

PRECEDES: Seconds = 600.0
"""A fault that began at most so long before another one of the same SKUs is named with it."""

_COUNTED_EVERY: Seconds = 15.0


@dataclass(slots=True)
class _Known:
    fault: Fault
    since: Instant
    seen_at: Instant
    jobs: deque[tuple[Instant, int]] = field(default_factory=deque)

    def count(self, fault: Fault, now: Instant) -> None:
        self.fault, self.seen_at = fault, now
        if not self.jobs or now - self.jobs[-1][0] >= _COUNTED_EVERY:
            self.jobs.append((now, fault.jobs))
        while len(self.jobs) > 1 and self.jobs[1][0] <= now - COMPARED:
            self.jobs.popleft()

    @property
    def trend(self) -> Trend:
        before = self.jobs[0][1]
        if self.fault.jobs == before:
            return Trend.STEADY
        return Trend.GROWING if self.fault.jobs > before else Trend.SHRINKING


class FaultTimes:
    """What is known of each fault, by its key. Pure: the caller passes the time.

    `FaultHistory` looks at the faults every ten seconds. A restart forgets what is here.
    """

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}

    def note(self, faults: Sequence[Fault], now: Instant) -> tuple[Fault, ...]:
        """Return these faults with their beginning, their trend and the fault that began just before."""
        for fault in faults:
            known = self._known.get(fault.key)
            if known is None or now - known.seen_at > KEPT:
                known = self._known[fault.key] = _Known(fault, now, now)
            known.count(fault, now)
        for key in [key for key, one in self._known.items() if now - one.seen_at > KEPT]:
            del self._known[key]
        return tuple(self._with_times(fault) for fault in faults)

    def _with_times(self, fault: Fault) -> Fault:
        known = self._known[fault.key]
        before = max(
            (one for one in self._known.values() if _precedes(one, known)),
            key=lambda one: one.since,
            default=None,
        )
        after = before.fault.name if before is not None else ""
        return replace(fault, since=known.since, trend=known.trend, after=after)


def _precedes(one: _Known, other: _Known) -> bool:
    """Return True if a fault began just before another one, and concerns its SKUs or the whole fleet."""
    if not 0.0 < other.since - one.since <= PRECEDES:
        return False
    return not one.fault.skus or not set(one.fault.skus).isdisjoint(other.fault.skus)
