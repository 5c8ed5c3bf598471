"""One controller process of the world: it ends as the real one does."""

import asyncio
from dataclasses import replace

import pytest

from autoscaler.controller.machines.opening import LISTED_TOGETHER
from autoscaler.model.identifiers import Seconds
from autoscaler.simulator.world.controller.clock import HostClock
from autoscaler.simulator.world.controller.crash_point import CrashPoint
from autoscaler.simulator.world.controller.process import ControllerProcess
from autoscaler.simulator.world.schedule import Schedule
from autoscaler.simulator.world.virtual_time import Tasks
from autoscaler.simulator.world.world import SimulatedWorld
from tests.chaos.fleet import SETTING
from tests.controller.virtual_time import on_virtual_time


class BrokenClock(HostClock):
    """Raises an error from a sleep of `LISTED_TOGETHER` seconds, which only opening the providers does."""

    async def sleep(self, seconds: Seconds) -> None:
        if seconds == LISTED_TOGETHER:
            raise ZeroDivisionError
        await super().sleep(seconds)


@on_virtual_time
async def test_an_error_while_providers_are_opened_ends_the_process() -> None:
    world = SimulatedWorld(SETTING, Schedule(0, (), (), lists=False))
    clock = BrokenClock(world.fault_schedule)
    ports = replace(world.ports(clock), clock=clock, pacing=clock, background=clock)
    process = ControllerProcess(ports, world.settings, CrashPoint())
    process.start()
    assert process.running is not None
    with pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(process.running, 60.0)
    await process.kill()


@on_virtual_time
async def test_unfinished_tasks_are_in_the_order_in_which_they_began() -> None:
    began, tasks = [], Tasks()
    for number in range(1000):
        task = asyncio.get_running_loop().create_task(asyncio.sleep(0.0 if number % 3 else 9.0))
        tasks.add(task)
        began.append(task)
        await asyncio.sleep(0.0)
    await asyncio.sleep(1.0)
    assert tasks.unfinished() == began[::3]
