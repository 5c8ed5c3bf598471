"""Which faults are active now, and which requests, machines or messages they hit: every n-th, by counting.

The other modules of the world carry the faults out.
"""

import asyncio
from collections import Counter

from autoscaler.model.identifiers import Seconds
from autoscaler.simulator.world.schedule import Fault, FaultKind


class FaultSchedule:
    """The faults of a schedule. `hits` counts by kind how often a fault hit something."""

    def __init__(self, faults: tuple[Fault, ...], began_at: float) -> None:
        self.hits: Counter[FaultKind] = Counter()
        self._began_at = began_at
        self._faults: dict[FaultKind, list[Fault]] = {}
        self._asked: Counter[Fault] = Counter()
        for fault in sorted(faults, key=lambda fault: fault.at):
            self._faults.setdefault(fault.kind, []).append(fault)

    @property
    def time(self) -> float:
        """Return the seconds since the world began."""
        return asyncio.get_running_loop().time() - self._began_at

    def active(self, kind: FaultKind) -> Fault | None:
        """Return the active fault of this kind, or None."""
        faults = self._faults.get(kind)
        if not faults:
            return None
        now = self.time
        for fault in faults:
            if fault.at <= now < fault.until:
                return fault
        return None

    def hit(self, kind: FaultKind) -> Fault | None:
        """Count one request, machine or message. Return the fault of this kind if it hits it, or None."""
        fault = self.active(kind)
        if fault is None:
            return None
        self._asked[fault] += 1
        if self._asked[fault] % fault.every:
            return None
        self.hits[kind] += 1
        return fault

    def first(self, kind: FaultKind) -> Fault | None:
        """Return the first fault of this kind, or None."""
        return next(iter(self._faults.get(kind, ())), None)

    @property
    def calm_for(self) -> Seconds | None:
        """Return for how long no fault has been active, or None while one is."""
        now = self.time
        ends = [f.until for faults in self._faults.values() for f in faults if f.at <= now]
        calm = now - max(ends, default=0.0)
        return calm if calm > 0.0 else None
