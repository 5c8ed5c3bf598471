"""Repositories created since the last full list: found within a minute; unreadable ones are dropped."""

import asyncio

import pytest

from autoscaler.controller.ports.github import OperatorError
from autoscaler.model.identifiers import JobId
from tests.controller.controllers import World, cancelled
from tests.controller.test_github_synchronizer import begin, synchronizing
from tests.controller.virtual_time import on_virtual_time


@pytest.mark.case(
    "a repository is created, and the webhook of its first job is lost",
    topic="GitHub's events",
    source="GitHub: list organization repositories",
)
@pytest.mark.parametrize("created", [1.0, 100.0, 250.0, 299.0])
@pytest.mark.parametrize("queued", [0.0, 15.0, 200.0])
@pytest.mark.parametrize("limit", [5_000, 15_000])
@on_virtual_time
async def test_a_job_of_a_new_repository_without_a_webhook_gets_a_machine_within_a_minute(
    created: float, queued: float, limit: int
) -> None:
    """Lists of all repositories are read every 300 s and do not show newer repositories."""
    world = World()
    controller, lists = await begin(world)
    lists.limit = limit
    lists.queue("acme/old", 1, 1, controller.journal.now)
    task = asyncio.create_task(synchronizing(controller, lists))
    await asyncio.sleep(created)
    lists.created["acme/new"] = world.clock.now()
    await asyncio.sleep(queued)
    queued_at = world.clock.now()
    lists.queue("acme/new", 2, 2, queued_at)
    await asyncio.sleep(59.0)
    assert JobId(2) in controller.state.jobs
    await controller.turn(0.5)
    assert sum(order.count for order in world.east.prepared) == 2
    assert world.clock.now() - queued_at <= 60.0
    await cancelled(task)


@on_virtual_time
async def test_a_new_repository_that_the_app_may_not_read_is_soon_not_read_any_more() -> None:
    """An organization's list shows public repositories to every App; the installation's list does not."""
    world = World()
    controller, lists = await begin(world)
    lists.queue("acme/old", 1, 1, controller.journal.now)
    task = asyncio.create_task(synchronizing(controller, lists))
    await asyncio.sleep(10.0)
    lists.created["acme/public"] = world.clock.now()
    lists.created["acme/old"] = 0.0
    lists.broken["acme/public"] = OperatorError("403")
    await asyncio.sleep(900.0)
    before = lists.failed["acme/public"]
    assert 0 < before < 40
    await asyncio.sleep(3600.0)
    assert lists.failed["acme/public"] == before
    await cancelled(task)


@on_virtual_time
async def test_staleness_grows_while_new_repositories_cannot_be_listed() -> None:
    world = World()
    controller, lists = await begin(world)
    lists.queue("acme/old", 1, 1, controller.journal.now)
    task = asyncio.create_task(synchronizing(controller, lists))
    await asyncio.sleep(100.0)
    assert world.telemetry.staleness["acme"] <= 60.0
    lists.broken["created org:acme"] = OperatorError("403")
    await asyncio.sleep(600.0)
    assert world.telemetry.staleness["acme"] >= 500.0
    await cancelled(task)
