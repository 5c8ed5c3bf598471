"""Until when GitHub gives jobs to a SKU's runner version is read hourly, and unknown rather than wrong."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from autoscaler.controller.ports.github import GitHubError, OperatorError, RetryLaterError
from autoscaler.controller.runner_releases import EVERY
from autoscaler.model.catalogue import Scope
from autoscaler.model.identifiers import Instant, SkuName
from autoscaler.model.runner_releases import GRACE, IN_USE_FOR, RunnerRelease
from tests.controller.agents import Agent, launched
from tests.controller.controllers import Controller, World, cancelled
from tests.controller.virtual_time import on_virtual_time
from tests.planner.fleets import catalogue, sku

GPU = SkuName("gpu")
VERSION, NEWER, NEWEST = "2.336.0", (2, 337, 0), (2, 338, 0)
DAY = 86_400.0


def release(world: World, version: tuple[int, ...], age: float) -> Instant:
    """Publish a release `age` seconds ago. Return until when GitHub gives jobs to the version before it."""
    published_at = world.clock.now() - age
    world.lists.releases.insert(0, RunnerRelease(version, published_at))
    return published_at + GRACE


@asynccontextmanager
async def watching(controller: Controller) -> AsyncIterator[None]:
    """Run the task of the watch, after its first read."""
    task = asyncio.create_task(controller.parts.release_watch.run())
    await asyncio.sleep(10.0)
    try:
        yield
    finally:
        await cancelled(task)


async def with_machine(world: World, version: str = VERSION) -> tuple[Controller, Agent]:
    """Return a controller with a machine that reported its runner's version."""
    controller, (agent,) = await launched(world)
    await agent.attest()
    await agent.health_checks(version=version)
    return controller, agent


def shown(world: World) -> tuple[str, Instant | None]:
    return world.telemetry.runner_deadlines[GPU]


@pytest.mark.case(
    "GitHub publishes a release of actions/runner: until when it gives jobs to the version of each "
    "SKU's machines is known weeks before it refuses them",
    topic="Runner and listener",
    source="GitHub: self-hosted runners",
)
@on_virtual_time
async def test_a_newer_release_is_found_within_the_hour_and_sets_the_deadline() -> None:
    world = World()
    release(world, (2, 336, 0), 40 * DAY)
    controller, _ = await with_machine(world)
    async with watching(controller):
        assert shown(world) == (VERSION, None)
        ends = release(world, NEWER, 0.0)
        await asyncio.sleep(EVERY)
        assert shown(world) == (VERSION, ends)
        release(world, NEWEST, 0.0)
        await asyncio.sleep(EVERY)
        assert shown(world) == (VERSION, ends)
    assert world.lists.asked["releases"] == 3


@on_virtual_time
async def test_a_new_controller_knows_how_old_the_release_is() -> None:
    world = World()
    ends = release(world, NEWER, 25 * DAY)
    controller, _ = await with_machine(world)
    async with watching(controller):
        assert shown(world) == (VERSION, ends)


@on_virtual_time
async def test_a_restart_keeps_the_version_of_machines_that_exist() -> None:
    world = World()
    ends = release(world, NEWER, DAY)
    controller, _ = await with_machine(world)
    await controller.kill()
    world.telemetry.runner_deadlines.clear()
    controller = Controller(world)
    await controller.resume()
    async with watching(controller):
        assert shown(world) == (VERSION, ends)


@on_virtual_time
async def test_what_is_unknown_has_no_deadline() -> None:
    world = World()
    controller, agent = await with_machine(world, version="")
    async with watching(controller):
        assert shown(world) == ("", None)  # neither the version nor the releases
        await agent.health_checks()
        assert shown(world) == (VERSION, None)
    world = World()
    release(world, NEWER, DAY)
    controller, agent = await with_machine(world, version="")
    async with watching(controller):
        assert shown(world) == ("", None)  # not the version


@on_virtual_time
async def test_failed_health_checks_do_not_show_a_version_in_use() -> None:
    world = World()
    release(world, NEWER, DAY)
    controller, (agent,) = await launched(world)
    await agent.attest()
    async with watching(controller):
        await agent.health_checks(passed=False)
        assert GPU not in world.telemetry.runner_deadlines


@on_virtual_time
async def test_a_list_of_older_releases_raises_no_alarm() -> None:
    world = World()
    release(world, (2, 300, 0), 400 * DAY)
    controller, _ = await with_machine(world)
    async with watching(controller):
        assert shown(world) == (VERSION, None)


ERRORS = [
    OperatorError("403 Resource not accessible by integration"),
    OperatorError("404 Not Found"),
    RetryLaterError("502 Bad Gateway", 30.0),
    RetryLaterError("200 with data of an unknown shape", 30.0),
]


@pytest.mark.parametrize("error", ERRORS, ids=["403", "404", "502", "shape"])
@on_virtual_time
async def test_a_list_that_cannot_be_read_is_logged_once_and_read_again_hourly(
    error: GitHubError,
) -> None:
    world = World()
    ends = release(world, NEWER, DAY)
    controller, _ = await with_machine(world)
    world.lists.broken["releases org:acme"] = error
    with capture_logs() as logs:
        async with watching(controller):
            assert shown(world) == (VERSION, None)
            await asyncio.sleep(2 * EVERY)
            assert shown(world) == (VERSION, None)
            del world.lists.broken["releases org:acme"]
            await asyncio.sleep(EVERY)
            assert shown(world) == (VERSION, ends)
            # The last list stays in use.
            world.lists.broken["releases org:acme"] = error
            await asyncio.sleep(EVERY)
            assert shown(world) == (VERSION, ends)
    found = [(line["event"], line["error"]) for line in logs]
    assert found == [("runner_releases_not_read", str(error))] * 2


@on_virtual_time
async def test_an_empty_list_is_not_believed() -> None:
    world = World()
    ends = release(world, NEWER, DAY)
    controller, _ = await with_machine(world)
    async with watching(controller):
        world.lists.releases.clear()
        await asyncio.sleep(EVERY)
        assert shown(world) == (VERSION, ends)


@on_virtual_time
async def test_another_account_is_asked_if_the_first_fails_and_none_twice() -> None:
    scopes = (Scope("acme", None, "a"), Scope("acme", None, "b"), Scope("globex", None, "gpu"))
    world = World(replace(catalogue(sku()), scopes=scopes))
    ends = release(world, NEWER, DAY)
    controller, _ = await with_machine(world)
    world.lists.broken["releases org:acme"] = OperatorError("401")
    with capture_logs() as logs:
        async with watching(controller):
            assert shown(world) == (VERSION, ends)
    assert world.lists.asked_of["releases org:acme"] == 1
    assert world.lists.asked_of["releases org:globex"] == 1
    assert logs == []


@on_virtual_time
async def test_a_new_image_clears_the_deadline_a_day_after_the_last_machine_of_the_old_one() -> (
    None
):
    world = World()
    ends = release(world, NEWER, DAY)
    controller, agent = await with_machine(world)
    async with watching(controller):
        await agent.health_checks(version="2.337.0")
        assert shown(world) == (VERSION, ends)
        await asyncio.sleep(IN_USE_FOR + 60.0)
        await agent.health_checks(version="2.337.0")
        assert shown(world) == ("2.337.0", None)


@on_virtual_time
async def test_a_sku_that_left_the_configuration_has_no_deadline() -> None:
    world = World()
    release(world, NEWER, DAY)
    controller, _ = await with_machine(world)
    async with watching(controller):
        assert shown(world)[1] is not None
        ledger = controller.journal.ledger
        ledger.replace_catalogue(replace(ledger.state.catalogue, skus={}))
        await asyncio.sleep(EVERY)
        assert shown(world) == ("", None)
