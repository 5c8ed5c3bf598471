"""Runner groups are read at the start and every hour, with a warning about one that is too wide."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from autoscaler.controller.github.runner_groups import AGAIN, EVERY, NAMED_AT_MOST
from autoscaler.controller.ports.github import OperatorError
from autoscaler.model.catalogue import Access, Catalogue, Scope
from autoscaler.model.events import JobObserved
from autoscaler.model.identifiers import JobId, Seconds
from autoscaler.model.jobs.job import JobState
from autoscaler.model.jobs.runner_group_excess import RunnerGroup
from tests.controller.controllers import Controller, World, cancelled
from tests.controller.virtual_time import on_virtual_time
from tests.planner.fleets import catalogue, sku

WIDE = RunnerGroup("all", allows_public_repositories=True, restricted_to_workflows=False)
NARROW = RunnerGroup("selected", False, False, ("acme/widgets",))


def one_repository() -> Catalogue:
    """Return a SKU for `acme/widgets` alone, in the group `gpu`, and a repository's scope."""
    known = catalogue(replace(sku(), access=Access(("acme/widgets",), forks=True)))
    return replace(known, scopes=(Scope("acme", None, "gpu"), Scope("acme", "other")))


async def watch(world: World, seconds: Seconds) -> list[Any]:
    """Return the warnings of some seconds."""
    for number in range(NAMED_AT_MOST + 2):
        world.lists.queue(f"acme/r{number}", number, number, world.clock.now())
    return await watch_group(world, seconds)


async def watch_group(world: World, seconds: Seconds = 10.0) -> list[Any]:
    controller = Controller(world)
    await controller.resume()
    with capture_logs() as logs:
        task = asyncio.create_task(controller.parts.group_watch.run())
        await asyncio.sleep(seconds)
        await cancelled(task)
    return logs


def shown(world: World) -> list[tuple[str, ...]]:
    return [said for said in world.telemetry.said if said[0] == "runner_group"]


def of_group(world: World, group: str, reason: str) -> list[tuple[str, ...]]:
    return [said for said in shown(world) if said[2:4] == (group, reason)]


@pytest.mark.case(
    "a runner group admits public repositories, or more than any `access` does",
    topic="GitHub's events",
    source="GitHub: secure use; GitHub: runner groups",
)
@on_virtual_time
async def test_a_runner_group_that_is_too_wide_causes_a_warning_at_the_start_and_every_hour() -> (
    None
):
    world = World(one_repository())
    world.github.groups["gpu"] = WIDE
    logs = await watch(world, 10.0)
    assert {line["event"] for line in logs} == {"runner_group_too_wide"}
    assert [line["reason"] for line in logs] == ["public_repositories", "outside_access"]
    assert [(line["scope"], line["runner_group"]) for line in logs] == [("org:acme", "gpu")] * 2
    assert len(logs[1]["repositories"]) == NAMED_AT_MOST
    assert logs[1]["count"] == NAMED_AT_MOST + 2
    assert shown(world) == [
        ("runner_group", "acme", "gpu", "public_repositories", "True"),
        ("runner_group", "acme", "gpu", "outside_access", "True"),
    ]
    world.telemetry.said.clear()
    await watch(world, 2 * EVERY + 100.0)
    assert len(shown(world)) == 3 * 2


@on_virtual_time
async def test_a_runner_group_that_fits_again_clears_the_metric() -> None:
    world = World(one_repository())
    world.github.groups["gpu"] = NARROW
    assert await watch(world, 10.0) == []
    assert [said[-1] for said in shown(world)] == ["False", "False"]


def two_groups() -> Catalogue:
    """Return a SKU for all repositories, in the group `gpu`; `acme/r0` has a group of its own."""
    scopes = (Scope("acme", None, "own", repositories=("acme/r0",)), Scope("acme", None, "gpu"))
    return replace(catalogue(sku()), scopes=scopes)


@on_virtual_time
async def test_an_incomplete_list_of_repositories_proves_no_runner_group_narrow_enough() -> None:
    """The list has no more than a limited number of repositories, and lacks those of a failing App.

    Excess among the listed repositories is real all the same.
    """
    world = World(two_groups())
    world.github.groups["gpu"] = RunnerGroup("private", False, False)
    world.github.groups["own"] = RunnerGroup("selected", False, False, ("acme/r0",))
    logs = await watch(world, 10.0)
    assert [(line["reason"], line["is_complete"]) for line in logs] == [("outside_access", True)]
    assert logs[0]["repositories"] == ("acme/r0",)
    del world.lists.active["acme/r0"]
    for whole, events, clear in (
        (False, {"runner_group_partly_checked"}, []),
        (True, set(), ["False"]),
    ):
        world.lists.whole = whole
        world.telemetry.said.clear()
        logs = await watch_group(world)
        assert {line["event"] for line in logs} == events
        assert [said[-1] for said in of_group(world, "gpu", "outside_access")] == clear
        assert [said[-1] for said in of_group(world, "gpu", "public_repositories")] == ["False"]
        assert [said[-1] for said in of_group(world, "own", "outside_access")] == ["False"]
    world.lists.whole = False
    logs = await watch(world, 10.0)
    assert [(line["reason"], line["is_complete"]) for line in logs] == [("outside_access", False)]


@on_virtual_time
async def test_repositories_are_listed_only_for_a_runner_group_that_admits_all_of_them() -> None:
    world = World(one_repository())
    world.github.groups["gpu"] = NARROW
    world.lists.broken["org:acme"] = OperatorError("502")
    assert await watch(world, 10.0) == []
    assert world.lists.asked["repositories"] == 0
    assert len(shown(world)) == 2


@on_virtual_time
async def test_a_runner_group_that_cannot_be_read_is_reported_and_retried_within_minutes() -> None:
    world = World(one_repository())
    world.github.groups["gpu"] = NARROW
    world.github.script("runner_group", OperatorError("403 Resource not accessible"))
    logs = await watch(world, AGAIN + 60.0)
    (line,) = logs
    assert (line["event"], line["scope"]) == ("runner_group_not_read", "org:acme")
    assert (line["runner_group"], line["error"]) == ("gpu", "403 Resource not accessible")
    assert len(shown(world)) == 2


@on_virtual_time
async def test_a_group_is_read_every_minute_while_jobs_are_on_hold_because_of_it() -> None:
    world = World(one_repository())
    world.github.groups["gpu"] = replace(NARROW, repositories=())
    controller = Controller(world)
    await controller.resume()
    task = asyncio.create_task(controller.parts.group_watch.run())
    await asyncio.sleep(600.0)
    assert world.github.asked.count("runner_group") == 1, "nothing waits for it"
    now = world.clock.now()
    queued = JobObserved(now, JobId(1), JobState.QUEUED, "acme/widgets", ("gpu",), now)
    await controller.parts.journal.record(queued)
    state = controller.parts.journal.ledger.state
    assert [job for jobs in state.on_hold.values() for job in jobs] == [1]
    await asyncio.sleep(300.0)
    assert 5 <= world.github.asked.count("runner_group") <= 7
    world.github.groups["gpu"] = NARROW
    await asyncio.sleep(61.0)
    assert not state.on_hold
    asked = world.github.asked.count("runner_group")
    await asyncio.sleep(600.0)
    assert world.github.asked.count("runner_group") == asked
    await cancelled(task)
