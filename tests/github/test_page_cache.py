"""The cache of list pages: which requests it saves, how long it keeps pages, and how many."""

import gc
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from statistics import median
from typing import Any

import pytest

from autoscaler.controller.ports.github import OperatorError
from autoscaler.controller.ports.github_lists import MOST_REPOSITORIES, Listing
from autoscaler.github.apps.authentication import App
from autoscaler.github.apps.selection import AppSelection
from autoscaler.github.client import GitHubClient
from autoscaler.github.lists.page_cache import (
    ITEM,
    JOB,
    MAX_AGE,
    MAX_BYTES,
    PAGE,
    PER_PAGE,
    PageCache,
)
from autoscaler.github.lists.reader import Lists
from autoscaler.github.requests.api import Api
from autoscaler.github.requests.budget import Budget
from autoscaler.github.requests.request_queue import RequestQueue
from autoscaler.github.requests.transport import Transport
from autoscaler.github.settings import AppKey, GitHubSettings
from autoscaler.model.jobs.job import JobState
from tests.github.conftest import World, job_spec
from tests.github.doubles import START
from tests.github.faults import fault
from tests.github.test_lists import WIDGETS


def push(world: World, run: int, jobs: int, repository: str = WIDGETS) -> list[int]:
    """Queue more jobs of a run and return their IDs."""
    first = len(world.github.jobs)
    specs = [job_spec(f"{first + n}", repository, run_id=run) for n in range(jobs)]
    return [job.id for job in world.github.push(specs)]


@asynccontextmanager
async def lists_that_keep(world: World, most: int) -> AsyncIterator[Lists]:
    """Return lists whose cache has so many bytes."""
    settings = GitHubSettings(world.url, (AppKey(1, world.keys.private_pem),))
    clock, budget = world.clock, Budget(settings.points_per_minute)
    transport = Transport(settings, clock, world.telemetry)
    queue = RequestQueue(budget, clock, settings.concurrency)
    api = Api(transport, queue, clock, world.telemetry)
    apps = [App(key, clock.now) for key in settings.apps]
    selection = AppSelection(api, apps, budget, clock, clock)
    pages = PageCache(api, transport.url_of, clock, most)
    try:
        yield Lists(pages, selection, budget, clock, limited=False)
    finally:
        await selection.close()
        await transport.close()


@pytest.mark.case(
    "304 answers are free",
    topic="GitHub's REST API",
    source="GitHub: rate limits",
)
async def test_an_unchanged_page_costs_no_budget(world: World, client: GitHubClient) -> None:
    world.administration.shape_lists(2)
    jobs = push(world, 7, 5)
    first = await client.lists.jobs(WIDGETS, 7, START)
    again = await client.lists.jobs(WIDGETS, 7, START + 60)
    assert [one.id for one in again.items] == [one.id for one in first.items] == jobs
    assert (first.calls, again.calls) == (3, 0)
    assert {one.at for one in again.items} == {START + 60}
    world.github.cancel(world.github.jobs[4])
    changed = await client.lists.jobs(WIDGETS, 7, START + 120)
    assert changed.calls == 1
    assert [one.state for one in changed.items] == [JobState.QUEUED] * 4 + [JobState.COMPLETED]


async def test_each_app_has_etags_of_its_own(world: World) -> None:
    """An ETag belongs to one App: another App may see other repositories."""
    world.administration.install(2, "acme", 78)
    async with world.client(apps=(1, 2)) as client:
        first = await client.lists.repositories("org:acme")
        assert (first.calls, world.traffic.conditional) == (2, 0)
        world.administration.create_repository("acme/gadgets")
        second = await client.lists.repositories("org:acme")
        assert (second.calls, world.traffic.conditional) == (2, 2)
        third = await client.lists.repositories("org:acme")
        assert (third.calls, world.traffic.conditional) == (0, 4)
        assert [one.name for one in third.items][-1] == "acme/gadgets"


async def test_pages_that_were_not_read_for_an_hour_are_dropped(
    world: World, client: GitHubClient
) -> None:
    """There are many completed runs, and their jobs are never listed again."""
    for number in (7, 8, 9):
        push(world, number, 1)
        await client.lists.jobs(WIDGETS, number, START)
    world.clock.at += MAX_AGE - 1.0
    assert (await client.lists.jobs(WIDGETS, 8, START)).calls == 0
    world.clock.at += 2.0
    assert (await client.lists.jobs(WIDGETS, 9, START)).calls == 0, "a moment too late to matter"
    calls = [(await client.lists.jobs(WIDGETS, number, START)).calls for number in (7, 8, 9)]
    assert calls == [1, 0, 0]


async def test_an_unexpected_304_is_an_error(world: World, client: GitHubClient) -> None:
    world.github.inject_faults(fault("/runs", status=304, body=b""))
    with pytest.raises(OperatorError):
        await client.lists.newest_runs(WIDGETS)


@pytest.mark.parametrize("etag", ["no quotes", '"' + "x" * 300 + '"', '"a\tb"', ""])
async def test_an_unusable_etag_is_not_sent_back(
    world: World, client: GitHubClient, etag: str
) -> None:
    body = {"total_count": 0, "workflow_runs": []}
    headers = {"ETag": etag} if etag else {}
    world.github.inject_faults(fault("/runs", 200, body, headers))
    push(world, 1, 1)
    assert (await client.lists.newest_runs(WIDGETS)).items == ()
    assert (await client.lists.newest_runs(WIDGETS)).calls == 1
    assert world.traffic.conditional == 0


async def test_the_page_cache_is_bounded_and_drops_the_oldest_page_first(world: World) -> None:
    for number in (7, 8, 9):
        push(world, number, 3)
    async with lists_that_keep(world, 2 * (PAGE + 3 * JOB)) as lists:

        async def calls(*runs: int) -> list[int]:
            return [(await lists.jobs(WIDGETS, run, START)).calls for run in runs]

        assert await calls(7, 8, 8, 7, 9, 7, 9) == [1, 1, 0, 0, 1, 0, 0]
        assert await calls(8) == [1], "three of three jobs are more than two"
        push(world, 7, 26)
        assert await calls(7, 7) == [1, 1], "too long to be kept"


async def test_the_page_cache_holds_all_repositories_that_are_read(world: World) -> None:
    """Pages are read in turn, so with one page too many every page would be dropped before its next read."""
    a_repository = PAGE + PER_PAGE * ITEM
    assert 2 * MOST_REPOSITORIES * a_repository <= MAX_BYTES
    names = [f"acme/r{number}" for number in range(5)]
    for number, name in enumerate(names):
        world.administration.create_repository(name)
        for run in range(PER_PAGE):
            push(world, 1 + run + PER_PAGE * number, 1, name)
    async with lists_that_keep(world, len(names) * a_repository) as lists:
        for calls in (len(names), 0, 0):
            assert sum([(await lists.newest_runs(name)).calls for name in names]) == calls


async def test_the_page_cache_takes_at_most_a_quarter_of_a_gigabyte(
    world: World, client: GitHubClient
) -> None:
    """A job in progress, with its names, times and commit, is the largest item."""
    when, sha = "2026-11-01T10:05:00Z", "929f8209d40f77f4abc622a499c93a83babdbe64"
    job = {
        "run_id": 7,
        "status": "in_progress",
        "labels": ["gpu"],
        "created_at": when,
        "name": "linux-cuda / test (default, 1, 5)",
        "workflow_name": "trunk",
        "runner_name": "ci-0badcafe-00000000000000aa-1",
        "runner_id": 4_321,
        "started_at": when,
        "head_sha": sha,
        "head_branch": "main",
    }
    shown = {"run_attempt": 1, "updated_at": when, "event": "push", "head_branch": "main"}
    run = shown | {"repository": {"id": 1, "private": True}, "head_repository": {"id": 1}}

    async def taken(
        ask: Callable[[str], Awaitable[Listing[Any]]], key: str, item: dict[str, Any]
    ) -> float:
        """Return the bytes that the cache needs for each item of a list: the median of three lists."""
        names = [WIDGETS, "acme/gadgets", "acme/gizmos"]
        return median([await of_one(partial(ask, name), key, item) for name in names])

    async def of_one(
        ask: Callable[[], Awaitable[Listing[Any]]], key: str, item: dict[str, Any]
    ) -> float:
        items = [item | {"id": number} for number in range(10**10, 10**10 + PER_PAGE)]
        left = []
        for etag in ({}, {}, {"ETag": '"1"'}):  # the first round also allocates other objects
            world.github.inject_faults(fault("/runs", 200, {key: items}, etag))
            gc.collect()
            tracemalloc.start()
            try:
                assert len((await ask()).items) == PER_PAGE
                gc.collect()
                left.append(tracemalloc.get_traced_memory()[0])
            finally:
                tracemalloc.stop()
        return (left[2] - left[1]) / PER_PAGE

    page = PAGE / PER_PAGE
    of_jobs = await taken(lambda name: client.lists.jobs(name, 7, START), "jobs", job)
    at_work = await taken(
        lambda name: client.lists.runs(name, "in_progress"),
        "workflow_runs",
        run | {"status": "in_progress"},
    )
    over = await taken(
        client.lists.newest_runs,
        "workflow_runs",
        run | {"status": "completed"},
    )
    assert 0.5 * JOB < of_jobs <= JOB + page
    assert ITEM < at_work <= 2 * ITEM + page  # with the time of its creation
    assert over <= 0.5 * ITEM + page
    assert MAX_BYTES <= 2**28
