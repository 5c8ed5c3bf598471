"""The end of a SKU's runner version is read hourly, and unknown rather than wrong."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from autoscaler.controller.github.runner_versions import EVERY, IN_USE_FOR, LOOK
from autoscaler.controller.ports.github import GitHubError, OperatorError, RetryLaterError
from autoscaler.model.catalogue import Scope
from autoscaler.model.identifiers import Instant, SkuName
from tests.controller.agents import Agent, launched
from tests.controller.controllers import Controller, World, cancelled
from tests.controller.virtual_time import on_virtual_time
from tests.planner.fleets import catalogue, sku

GPU = SkuName("gpu")
VERSION = "2.336.0"
DAY = 86_400.0


def ends(world: World, version: str = VERSION, after: float = 20 * DAY) -> Instant:
    """Let GitHub end a version `after` seconds from now. Return that time."""
    world.lists.version_ends[version] = world.clock.now() + after
    return world.lists.version_ends[version]


@asynccontextmanager
async def watching(controller: Controller) -> AsyncIterator[None]:
    """Run the task of the watch, after its first read."""
    task = asyncio.create_task(controller.parts.version_watch.run())
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
    "GitHub sets the end of a version of actions/runner: it is known for each SKU's machines weeks "
    "before GitHub refuses them",
    topic="Runner and listener",
    source="GitHub: ends of runner versions",
)
@on_virtual_time
async def test_the_end_of_a_version_is_known_within_the_hour() -> None:
    world = World()
    controller, _ = await with_machine(world)
    async with watching(controller):
        assert shown(world) == (VERSION, None)
        end = ends(world)
        await asyncio.sleep(EVERY)
        assert shown(world) == (VERSION, end)
        moved = ends(world, after=40 * DAY)
        await asyncio.sleep(EVERY)
        assert shown(world) == (VERSION, moved)
    assert world.lists.asked["versions"] == 3


@on_virtual_time
async def test_github_is_asked_about_a_new_version_within_a_minute() -> None:
    world = World()
    ends(world, "2.300.0")
    controller, agent = await with_machine(world)
    end = ends(world, "2.335.0", DAY)
    async with watching(controller):
        await agent.health_checks(version="2.335.0")
        assert shown(world) == ("2.335.0", None)
        await asyncio.sleep(LOOK)
        assert shown(world) == ("2.335.0", end)
        await asyncio.sleep(EVERY / 2)
    assert world.lists.asked["versions"] == 2


@on_virtual_time
async def test_a_restart_keeps_the_version_of_machines_that_exist() -> None:
    world = World()
    end = ends(world)
    controller, _ = await with_machine(world)
    await controller.kill()
    world.telemetry.runner_deadlines.clear()
    controller = Controller(world)
    await controller.resume()
    async with watching(controller):
        assert shown(world) == (VERSION, end)


@on_virtual_time
async def test_what_is_unknown_has_no_deadline() -> None:
    world = World()
    controller, agent = await with_machine(world, version="")
    async with watching(controller):
        assert shown(world) == ("", None)
        await agent.health_checks()
        assert shown(world) == (VERSION, None)
    assert world.lists.asked["versions"] == 0


@on_virtual_time
async def test_failed_health_checks_do_not_show_a_version_in_use() -> None:
    world = World()
    ends(world)
    controller, (agent,) = await launched(world)
    await agent.attest()
    async with watching(controller):
        await agent.health_checks(passed=False)
        assert GPU not in world.telemetry.runner_deadlines


ERRORS = [
    OperatorError("403 Resource not accessible by integration"),
    OperatorError("404 Not Found"),
    RetryLaterError("502 Bad Gateway", 30.0),
    RetryLaterError("200 with data of an unknown shape", 30.0),
]


@pytest.mark.parametrize("error", ERRORS, ids=["403", "404", "502", "shape"])
@on_virtual_time
async def test_an_answer_that_cannot_be_read_is_logged_once_and_asked_for_hourly(
    error: GitHubError,
) -> None:
    world = World()
    end = ends(world)
    controller, _ = await with_machine(world)
    world.lists.broken["versions org:acme"] = error
    with capture_logs() as logs:
        async with watching(controller):
            assert shown(world) == (VERSION, None)
            await asyncio.sleep(2 * EVERY)
            assert shown(world) == (VERSION, None)
            del world.lists.broken["versions org:acme"]
            await asyncio.sleep(EVERY)
            assert shown(world) == (VERSION, end)
            # The last answer stays in use.
            world.lists.broken["versions org:acme"] = error
            await asyncio.sleep(EVERY)
            assert shown(world) == (VERSION, end)
    found = [(line["event"], line["error"]) for line in logs]
    assert found == [("runner_version_end_not_read", str(error))] * 2


@on_virtual_time
async def test_another_account_is_asked_if_the_first_fails_and_none_twice() -> None:
    scopes = (Scope("acme", None, "a"), Scope("acme", None, "b"), Scope("globex", None, "gpu"))
    world = World(replace(catalogue(sku()), scopes=scopes))
    end = ends(world)
    controller, _ = await with_machine(world)
    world.lists.broken["versions org:acme"] = OperatorError("401")
    with capture_logs() as logs:
        async with watching(controller):
            assert shown(world) == (VERSION, end)
    assert world.lists.asked_of["versions org:acme"] == 1
    assert world.lists.asked_of["versions org:globex"] == 1
    assert logs == []


@on_virtual_time
async def test_a_new_image_clears_the_deadline_a_day_after_the_last_machine_of_the_old_one() -> (
    None
):
    world = World()
    end = ends(world)
    controller, agent = await with_machine(world)
    async with watching(controller):
        await agent.health_checks(version="2.337.0")
        assert shown(world) == (VERSION, end)
        await asyncio.sleep(IN_USE_FOR + 60.0)
        await agent.health_checks(version="2.337.0")
        assert shown(world) == ("2.337.0", None)


@on_virtual_time
async def test_a_sku_that_left_the_configuration_has_no_deadline() -> None:
    world = World()
    ends(world)
    controller, _ = await with_machine(world)
    async with watching(controller):
        assert shown(world)[1] is not None
        ledger = controller.journal.ledger
        ledger.replace_catalogue(replace(ledger.state.catalogue, skus={}))
        await asyncio.sleep(EVERY)
        assert shown(world) == ("", None)
