"""The clock of the controller's host, with the jumps of the schedule.

Like the product's clock, it does not go back within a process.
"""

import asyncio

from autoscaler.model.identifiers import Instant, Seconds
from autoscaler.simulator.world.fault_schedule import FaultSchedule
from autoscaler.simulator.world.schedule import FaultKind
from autoscaler.simulator.world.virtual_time import EPOCH


class HostClock:
    """The clock of one controller process. It has the scheduled clock jumps, and never goes back."""

    def __init__(self, fault_schedule: FaultSchedule) -> None:
        self._fault_schedule = fault_schedule
        self._loop = asyncio.get_running_loop()
        self._latest: Instant = 0.0

    def now(self) -> Instant:
        """Return the Unix seconds of this host."""
        now = EPOCH + self._loop.time()
        jump = self._fault_schedule.active(FaultKind.CLOCK_JUMP)
        if jump is not None:
            now += jump.target
        if now > self._latest:
            self._latest = now
        return self._latest

    async def sleep(self, seconds: Seconds) -> None:
        """Return after this much virtual time, independent of jumps of the clock."""
        await asyncio.sleep(seconds)


class BusyClock(HostClock):
    """A clock that sleeps four times as long, to save time in tasks that poll each second for hours."""

    async def sleep(self, seconds: Seconds) -> None:
        """Return after four times as long."""
        await super().sleep(4.0 * seconds)
