"""Slow tasks at providers, each independent: reading quotas and garbage collection."""

import asyncio

from autoscaler.controller.money.quotas import READ_EVERY as UPKEEP_EVERY
from autoscaler.controller.ports.provider import OutcomeUnknownError, ProviderError
from autoscaler.model.identifiers import ProviderName
from autoscaler.model.machines.failures import FailureClass
from tests.controller.agents import queue
from tests.controller.controllers import Controller, World, cancelled
from tests.controller.fakes_provider import FakeProvider
from tests.controller.virtual_time import on_virtual_time
from tests.planner.fleets import EAST

WEST = ProviderName("west")
BROKEN = ProviderError(FailureClass.THROTTLED, "RequestLimitExceeded", "later")


async def watch(controller: Controller, seconds: float) -> None:
    """Run the upkeep for some seconds."""
    task = asyncio.create_task(controller.run_tasks())
    await asyncio.sleep(seconds)
    if task.done():
        await task
    await cancelled(task)


@on_virtual_time
async def test_quotas_are_read_at_once_and_every_ten_minutes() -> None:
    world = World()
    world.east.quotas_left = {"east/G": 8}
    controller = Controller(world)
    await controller.resume()
    await watch(controller, 10.0)
    assert controller.state.quotas == {"east/G": 8}
    world.east.quotas_left = {"east/G": 4}
    await watch(controller, 10.0)
    assert controller.state.quotas == {"east/G": 4}
    assert len(world.east.collected) == 2
    await watch(controller, 2 * UPKEEP_EVERY + 10.0)
    assert len(world.east.collected) == 5


@on_virtual_time
async def test_quotas_that_cannot_be_read_stay_and_other_upkeep_continues() -> None:
    world = World(providers={EAST: FakeProvider(), WEST: FakeProvider(WEST)})
    controller = Controller(world)
    await controller.resume()
    controller.state.quotas = {"east/G": 8}
    world.east.quota_script.extend([BROKEN, OutcomeUnknownError("time-out")])
    world.east.collect_script.append(BROKEN)
    await watch(controller, UPKEEP_EVERY + 10.0)
    assert controller.state.quotas == {"east/G": 8}
    assert len(world.east.collected) == len(world.providers[WEST].collected) == 2


@on_virtual_time
async def test_bodies_of_open_launch_requests_are_passed_to_the_garbage_collection() -> None:
    world = World()
    world.east.launch_script.append(OutcomeUnknownError("the connection broke"))
    controller = Controller(world)
    await controller.resume()
    await queue(controller, 1)
    await controller.turn()
    (call,) = controller.state.open_launch_requests.values()
    await watch(controller, 5.0)
    assert world.east.collected == [(call.body,)]
