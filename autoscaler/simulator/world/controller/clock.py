"""The clock of the controller's host, with the jumps of the schedule: the product's own, on virtual time."""

import asyncio

from autoscaler.controller.system import SystemClock
from autoscaler.model.identifiers import Instant, Seconds
from autoscaler.simulator.world.fault_schedule import FaultSchedule
from autoscaler.simulator.world.schedule import FaultKind
from autoscaler.simulator.world.virtual_time import EPOCH


class HostClock:
    """The clock of one controller process. The wall clock of its host has the scheduled jumps.

    It is `ahead` of the world's by so many seconds.
    """

    def __init__(self, fault_schedule: FaultSchedule, ahead: Seconds = 0.0) -> None:
        loop = asyncio.get_running_loop()

        def wall() -> Instant:
            jump = fault_schedule.active(FaultKind.CLOCK_JUMP)
            return EPOCH + ahead + loop.time() + (jump.target if jump is not None else 0.0)

        self._clock = SystemClock(unscaled=wall, monotonic=loop.time)
        self.stop_if_set_back = self._clock.stop_if_set_back

    def now(self) -> Instant:
        """Return the Unix seconds of this host."""
        return self._clock.now()

    async def sleep(self, seconds: Seconds) -> None:
        """Return after this much virtual time, independent of jumps of the clock."""
        await asyncio.sleep(seconds)


class BusyClock(HostClock):
    """A clock that sleeps four times as long, to save time in tasks that poll each second for hours."""

    async def sleep(self, seconds: Seconds) -> None:
        """Return after four times as long."""
        await super().sleep(4.0 * seconds)
