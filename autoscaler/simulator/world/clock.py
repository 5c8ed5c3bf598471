"""The clock of the controller's host: right, but for the jumps of the schedule.

As the product's own clock it never goes back within a process. It tells time and decides nothing.
"""

import asyncio

from autoscaler.model.identifiers import Instant, Seconds
from autoscaler.simulator.world.fault_schedule import FaultSchedule
from autoscaler.simulator.world.schedule import FaultKind
from autoscaler.simulator.world.virtual_time import EPOCH


class HostClock:
    """A Clock for one process."""

    def __init__(self, fault_schedule: FaultSchedule) -> None:
        self._fault_schedule = fault_schedule
        self._loop = asyncio.get_running_loop()
        self._latest: Instant = 0.0

    def now(self) -> Instant:
        """Unix seconds, as this host has them."""
        now = EPOCH + self._loop.time()
        jump = self._fault_schedule.holding(FaultKind.CLOCK_JUMP)
        if jump is not None:
            now += jump.target
        if now > self._latest:
            self._latest = now
        return self._latest

    async def sleep(self, seconds: Seconds) -> None:
        """Return after so much time, however the clock jumps."""
        await asyncio.sleep(seconds)


class BusyClock(HostClock):
    """One whose sleepers wake four times as late: for what looks every second for hours."""

    async def sleep(self, seconds: Seconds) -> None:
        """Return after four times so long."""
        await super().sleep(4.0 * seconds)
