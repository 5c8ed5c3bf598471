"""One controller process of the world: it ends as the real one does."""

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

import pytest

from autoscaler.controller.machines.opening import LISTED_TOGETHER
from autoscaler.model.identifiers import Seconds
from autoscaler.simulator.world.controller.clock import HostClock
from autoscaler.simulator.world.controller.process import ControllerProcess
from autoscaler.simulator.world.processes import OWNER, Process, Tasks, count_call, send
from autoscaler.simulator.world.schedule import Schedule
from autoscaler.simulator.world.virtual_time import VirtualLoop
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
    process = ControllerProcess(ports, world.settings, Process())
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


def owned(tasks: Tasks, work: Coroutine[Any, Any, None]) -> None:
    """Start a task of a process."""
    token = OWNER.set(tasks)
    try:
        tasks.add(asyncio.get_running_loop().create_task(work))
    finally:
        OWNER.reset(token)


@on_virtual_time
async def test_a_paused_process_does_nothing_until_it_goes_on_in_the_order_of_its_timers() -> None:
    loop, done = asyncio.get_running_loop(), list[tuple[str, float]]()
    assert isinstance(loop, VirtualLoop)
    paused, other = Tasks(), Tasks()

    async def step(name: str, after: float) -> None:
        await asyncio.sleep(after)
        done.append((name, loop.time()))
        await asyncio.sleep(0.0)
        done.append((f"{name} again", loop.time()))

    for name, after in (("third", 3.0), ("second", 2.0), ("last", 70.0)):
        owned(paused, step(name, after))
    owned(other, step("other", 2.5))
    await asyncio.sleep(1.0)
    loop.pause(paused.process, 60.0)
    loop.pause(paused.process, 5.0)
    await asyncio.sleep(100.0)
    assert done == [
        ("other", 2.5),
        ("other again", 2.5),
        ("second", 61.0),
        ("third", 61.0),
        ("second again", 61.0),
        ("third again", 61.0),
        ("last", 70.0),
        ("last again", 70.0),
    ]


@on_virtual_time
async def test_a_process_that_is_paused_in_a_call_goes_on_there() -> None:
    loop, tasks, called = asyncio.get_running_loop(), Tasks(), list[float]()
    assert isinstance(loop, VirtualLoop)
    tasks.process.crash_point.arm(2, lambda: loop.pause(tasks.process, 60.0))

    async def call() -> None:
        for _ in range(3):
            await count_call()
            called.append(loop.time())

    owned(tasks, call())
    await asyncio.sleep(100.0)
    assert called == [0.0, 60.0, 60.0]


@on_virtual_time
async def test_what_a_request_causes_does_not_wait_for_its_process() -> None:
    loop, tasks, caused = asyncio.get_running_loop(), Tasks(), list[float]()
    assert isinstance(loop, VirtualLoop)

    async def request() -> None:
        send(lambda: loop.call_later(5.0, lambda: caused.append(loop.time())), RuntimeError)
        loop.pause(tasks.process, 60.0)

    owned(tasks, request())
    await asyncio.sleep(100.0)
    assert caused == [5.0]


@on_virtual_time
async def test_a_process_that_does_not_lead_sends_nothing() -> None:
    tasks, sent, refused = Tasks(), list[str](), list[str]()
    tasks.process.leads = lambda: 0.0

    async def request() -> None:
        try:
            send(lambda: sent.append("sent"), RuntimeError)
        except RuntimeError as error:
            refused.append(str(error))

    owned(tasks, request())
    await asyncio.sleep(1.0)
    assert (sent, refused) == ([], ["this replica does not lead"])
