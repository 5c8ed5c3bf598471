"""A list is dated at the start of its reading: it may miss later changes."""

import asyncio

import pytest

from autoscaler.controller.github.orphans import CONFIRMED_AFTER
from autoscaler.controller.github.read_schedule import INTERVALS, RUNNERS_SOON, Kind
from autoscaler.controller.ports.github import RegisteredRunner
from autoscaler.model.identifiers import Seconds
from tests.controller.agents import launched, queue
from tests.controller.controllers import World, cancelled
from tests.controller.test_github_synchronizer import OURS, begin, synchronizing
from tests.controller.virtual_time import on_virtual_time
from tests.planner.fleets import EAST

SLOW: Seconds = 20.0


@on_virtual_time
async def test_a_machine_launched_during_a_listing_does_not_count_as_missing_from_it() -> None:
    world = World()
    controller, _ = await launched(world)
    world.east.latency = SLOW
    listing = asyncio.create_task(controller.machine_lists.list_machines(EAST))
    await asyncio.sleep(1.0)
    world.east.latency = 0.5
    await queue(controller, 2)
    await controller.turn()
    assert len(world.east.running) == 2
    began_at = world.clock.now() - 6.0
    assert await listing
    assert [machine.absent_since for machine in controller.state.machines.values()] == [None] * 2
    assert controller.state.machines_listed_at[EAST] == pytest.approx(began_at, abs=0.5)


@on_virtual_time
async def test_a_list_of_runners_is_dated_at_its_start() -> None:
    """A runner that registers while the list is read may be in no page of it."""
    world = World()
    controller, lists = await begin(world)
    lists.latency = SLOW
    began_at = controller.journal.now
    task = asyncio.create_task(synchronizing(controller, lists))
    await asyncio.sleep(SLOW + 10.0)
    listed_at = controller.state.evidence.runners_listed_at
    assert began_at <= listed_at <= world.clock.now() - SLOW
    await cancelled(task)


@on_virtual_time
async def test_the_minute_before_a_registration_is_removed_counts_from_the_start_of_the_first_list() -> (
    None
):
    """Two lists that began a minute apart remove a registration, however long each of them took."""
    world = World()
    controller, lists = await begin(world)
    await controller.machine_lists.list_machines(EAST)
    lists.latency = SLOW
    lists.registrations = [RegisteredRunner(1, OURS, online=False, busy=False)]
    deleted = []

    async def delete(scope: str, github_id: int) -> bool:
        deleted.append(world.clock.now())
        return True

    world.github.delete_runner = delete  # type: ignore[method-assign]
    began_at = world.clock.now()
    task = asyncio.create_task(synchronizing(controller, lists))
    while world.clock.now() < began_at + 200.0:
        await asyncio.sleep(29.0)
        lists.latency = 0.3  # only the first list took long
        await controller.machine_lists.list_machines(EAST)
    assert RUNNERS_SOON == CONFIRMED_AFTER
    assert deleted[0] - began_at == pytest.approx(RUNNERS_SOON, abs=3.0)
    await cancelled(task)


@on_virtual_time
async def test_a_slow_read_is_repeated_an_interval_after_it_began() -> None:
    world = World()
    controller, lists = await begin(world)
    lists.queue("acme/widgets", 1, 1, world.clock.now())
    lists.latency = SLOW
    began: list[float] = []
    newest = lists.newest_runs

    async def noted(repository: str):  # type: ignore[no-untyped-def]
        began.append(world.clock.now())
        return await newest(repository)

    lists.newest_runs = noted  # type: ignore[method-assign]
    task = asyncio.create_task(synchronizing(controller, lists))
    await asyncio.sleep(240.0)
    assert began[1] - began[0] == pytest.approx(INTERVALS[Kind.NEWEST], abs=2.0)
    assert world.telemetry.staleness["acme"] >= SLOW
    await cancelled(task)
