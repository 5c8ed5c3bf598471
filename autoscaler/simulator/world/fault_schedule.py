"""Which faults hold now, and which of the things they concern they hit: every n-th, by counting.

It never decides what a fault does; the parts of the world ask and do it.
"""

import asyncio
from collections import Counter

from autoscaler.model.identifiers import Seconds
from autoscaler.simulator.world.schedule import Fault, FaultKind


class FaultSchedule:
    """The faults of a schedule. `hits` counts what each kind did."""

    def __init__(self, faults: tuple[Fault, ...], began_at: float) -> None:
        self.hits: Counter[FaultKind] = Counter()
        self._began_at = began_at
        self._loop = asyncio.get_running_loop()
        self._faults: dict[FaultKind, list[Fault]] = {}
        self._asked: Counter[Fault] = Counter()
        for fault in sorted(faults, key=lambda fault: fault.at):
            self._faults.setdefault(fault.kind, []).append(fault)

    @property
    def time(self) -> float:
        """Seconds since the world began."""
        return self._loop.time() - self._began_at

    def holding(self, kind: FaultKind) -> Fault | None:
        """The fault of this kind that holds now."""
        faults = self._faults.get(kind)
        if not faults:
            return None
        now = self.time
        for fault in faults:
            if fault.at <= now < fault.until:
                return fault
        return None

    def strikes(self, kind: FaultKind) -> Fault | None:
        """Count one thing that this kind concerns: the fault, if it is hit."""
        fault = self.holding(kind)
        if fault is None:
            return None
        self._asked[fault] += 1
        if self._asked[fault] % fault.every:
            return None
        self.hits[kind] += 1
        return fault

    @property
    def calm_for(self) -> Seconds | None:
        """For how long no fault has held; None while one does."""
        now = self.time
        ends = [f.until for faults in self._faults.values() for f in faults if f.at <= now]
        calm = now - max(ends, default=0.0)
        return calm if calm > 0.0 else None
