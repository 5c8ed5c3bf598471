"""Lists that cannot be read or take many calls: what is reported, and how many calls they use."""

import asyncio
from collections import defaultdict

import pytest
from structlog.testing import capture_logs

from autoscaler.controller.github.synchronizer import AT_ONCE, SAVED_FOR
from autoscaler.controller.ports.github import GitHubError, OperatorError, RetryLaterError
from autoscaler.controller.ports.github_lists import MOST_REPOSITORIES, ListedRepository, Listing
from autoscaler.model.events import JobObserved
from autoscaler.model.identifiers import Instant, JobId, Seconds
from tests.controller.controllers import Controller, World, cancelled
from tests.controller.fakes_lists import FakeLists
from tests.controller.test_github_synchronizer import begin, synchronizing, watch
from tests.controller.virtual_time import on_virtual_time

HOUR: Seconds = 3600.0


async def with_runs(count: int) -> tuple[Controller, FakeLists]:
    controller, lists = await begin(World())
    for n in range(count):
        lists.queue(f"acme/r{n}", n, n, controller.journal.now)
    return controller, lists


@pytest.mark.case(
    "GitHub answers 403, 404 or 502 to a list for hours: the controller logs it and asks ever "
    "less often",
    topic="GitHub's events",
    source="GitHub: best practices for the REST API",
)
@pytest.mark.parametrize(
    ("error", "most"),
    [
        # At double the time up to 900 s: newest runs and jobs, the run itself (never read, so after
        # 15 s at first), queued runs and the two other states; and the scope's three lists.
        (OperatorError("403"), 8 * (8 + 8 + 9 + 3 + 1 + 1) + 3 * 5),
        # After each pause of 30 s, as many reads as allowed at once, until the first of them fails.
        (RetryLaterError("502", 30.0), int(HOUR / 30.0) * AT_ONCE),
    ],
    ids=["permission lost", "outage"],
)
@on_virtual_time
async def test_while_nothing_can_be_read_staleness_grows_and_reads_back_off(
    error: GitHubError, most: int
) -> None:
    controller, lists = await with_runs(8)
    reported = controller.world.telemetry.staleness
    task = asyncio.create_task(synchronizing(controller, lists))
    await asyncio.sleep(60.0)
    assert reported["acme"] <= 60.0
    lists.broken = defaultdict(lambda: error)
    before = lists.asked.total()
    await asyncio.sleep(HOUR)
    assert reported["acme"] >= HOUR
    assert lists.asked.total() - before <= most
    lists.broken = {}
    await asyncio.sleep(900.0)
    reported.clear()
    await asyncio.sleep(60.0)
    assert reported["acme"] <= 60.0, "and all is well again"
    await cancelled(task)


@pytest.mark.case(
    "GitHub answers 403, 404 or 502 to a list for hours: the controller logs it and asks ever "
    "less often",
    topic="GitHub's events",
    source="GitHub: best practices for the REST API",
)
@on_virtual_time
async def test_a_refused_read_is_logged_with_backoff() -> None:
    controller, lists = await with_runs(2)
    lists.broken["acme/r1"] = OperatorError("403 Resource not accessible by integration")
    with capture_logs() as lines:
        task = asyncio.create_task(synchronizing(controller, lists))
        await asyncio.sleep(2.0 * HOUR)
        await cancelled(task)
    runs = [line for line in lines if line["event"] == "list_not_read" and line["kind"] == "newest"]
    assert {line["of"] for line in runs} == {"acme/r1"}
    warned = [line["times"] for line in runs if line["log_level"] == "warning"]
    assert warned == [1, 2, 4, 8]
    assert len(runs) < 16


@pytest.mark.case(
    "GitHub answers 403, 404 or 502 to a list for hours: the controller logs it and asks ever "
    "less often",
    topic="GitHub's events",
    source="GitHub: best practices for the REST API",
)
@on_virtual_time
async def test_a_repository_that_always_fails_is_read_with_backoff() -> None:
    controller, lists = await with_runs(4)
    lists.broken["acme/r1"] = RetryLaterError("502", 1.0)
    task = asyncio.create_task(synchronizing(controller, lists))
    await asyncio.sleep(60.0)
    before = lists.failed.copy()
    await asyncio.sleep(HOUR)
    # Its four lists 7 to 9 times each: a list that was never read is tried after 15 s, then at double
    # the time up to 900 s.
    assert (lists.failed - before).total() <= 33
    await cancelled(task)


@pytest.mark.case(
    "after an outage, all lists are read at their usual pace again",
    topic="GitHub's events",
    source="GitHub: rate limits",
)
@on_virtual_time
async def test_after_an_outage_no_read_keeps_its_backoff() -> None:
    """An outage is no reason to delay the lists that failed during it."""
    controller, lists = await with_runs(8)
    reported = controller.world.telemetry.staleness
    task = asyncio.create_task(synchronizing(controller, lists))
    await asyncio.sleep(60.0)
    lists.broken = defaultdict(lambda: RetryLaterError("502", 30.0))
    await asyncio.sleep(HOUR)
    lists.broken = {}
    await asyncio.sleep(75.0)
    reported.clear()
    await asyncio.sleep(60.0)
    assert reported["acme"] <= 60.0
    await cancelled(task)


@pytest.mark.case(
    "more repositories than the controller watches: it watches those with the latest activity",
    topic="GitHub's events",
    source="GitHub: an App's repositories",
)
@on_virtual_time
async def test_repositories_beyond_the_limit_are_counted_and_reported() -> None:
    controller, lists = await begin(World())
    lists.active = {f"acme/r{n}": {} for n in range(MOST_REPOSITORIES + 2)}
    with capture_logs() as lines:
        task = asyncio.create_task(synchronizing(controller, lists))
        await asyncio.sleep(5.0)
        await cancelled(task)
    assert controller.world.telemetry.unwatched == {"acme": 2}
    (line,) = [one for one in lines if one["event"] == "repositories_unwatched"]
    assert (line["scope"], line["repositories"], line["log_level"]) == ("org:acme", 2, "warning")


@pytest.mark.case(
    "the first read of the repositories or of a new run fails: it is repeated within seconds",
    topic="GitHub's events",
    source="GitHub: best practices for the REST API",
)
@pytest.mark.parametrize("of", ["org:acme", "acme/r1"], ids=["repositories", "runs and jobs"])
@on_virtual_time
async def test_a_failed_first_read_delays_the_lists_by_at_most_a_minute(of: str) -> None:
    """Before the first read nothing is known, so there is nothing else to read."""
    controller, lists = await begin(World())
    lists.queue("acme/r1", 1, 1, controller.journal.now)
    lists.broken[of] = RetryLaterError("502", 1.0)
    task = asyncio.create_task(synchronizing(controller, lists))
    await asyncio.sleep(5.0)
    assert lists.failed[of] >= 1
    lists.broken.clear()
    await asyncio.sleep(15.0)
    assert JobId(1) in controller.state.jobs
    await cancelled(task)


class _FirstJobsFail(FakeLists):
    """The first list of jobs is answered 502."""

    async def jobs(self, repository: str, run_id: int, now: Instant) -> Listing[JobObserved]:
        listed = await super().jobs(repository, run_id, now)
        if self.asked["jobs"] == 1:
            raise RetryLaterError("502", 1.0)
        return listed


@pytest.mark.case(
    "the first read of the repositories or of a new run fails: it is repeated within seconds",
    topic="GitHub's events",
    source="GitHub: best practices for the REST API",
)
@on_virtual_time
async def test_a_new_run_whose_jobs_could_not_be_read_is_read_again_within_seconds() -> None:
    controller, _ = await begin(World())
    lists = _FirstJobsFail(controller.world.clock.now, since=controller.world.clock.now())
    lists.queue("acme/r1", 1, 1, controller.journal.now)
    await watch(controller, lists, 20.0)
    assert lists.asked["jobs"] == 2
    assert JobId(1) in controller.state.jobs


class _LongRuns(FakeLists):
    """Each run has so many jobs that they come in three pages, all of which count."""

    async def jobs(self, repository: str, run_id: int, now: Instant) -> Listing[JobObserved]:
        listed = await super().jobs(repository, run_id, now)
        self.used += 2
        return Listing(listed.items, 3)


async def long_runs(steady: float | None) -> tuple[Controller, FakeLists]:
    controller, _ = await begin(World())
    lists = _LongRuns(controller.world.clock.now, since=controller.world.clock.now())
    lists.steady = steady
    for n in range(75):
        lists.queue(f"acme/r{n % 20}", n, n, controller.journal.now)
    return controller, lists


@pytest.mark.case(
    "runs of several hundred jobs, with several pages each: the budget of calls holds, and no "
    "list starves",
    topic="GitHub's events",
    source="GitHub: rate limits",
)
@on_virtual_time
async def test_lists_of_many_pages_stay_within_the_budget_of_calls() -> None:
    """All pages together need more than the allowed calls."""
    controller, lists = await long_runs(steady=2.0)
    task = asyncio.create_task(synchronizing(controller, lists))
    await asyncio.sleep(1200.0)
    await cancelled(task)
    assert lists.used == pytest.approx(2.0 * 1200.0, abs=2.0 * SAVED_FOR)


@pytest.mark.case(
    "runs of several hundred jobs, with several pages each: the budget of calls holds, and no "
    "list starves",
    topic="GitHub's events",
    source="GitHub: rate limits",
)
@on_virtual_time
async def test_lists_of_many_pages_do_not_get_staler_towards_the_end_of_githubs_hour() -> None:
    controller, lists = await long_runs(steady=None)
    reported = controller.world.telemetry.staleness
    task = asyncio.create_task(synchronizing(controller, lists))
    oldest = []
    for _ in range(59):
        reported.clear()
        await asyncio.sleep(60.0)
        oldest.append(reported["acme"])
    await cancelled(task)
    assert max(oldest[-15:]) <= max(oldest[:15])


class _LongLists(FakeLists):
    """Repositories come in many pages, all of which count."""

    pages = 200
    whole = True

    async def repositories(self, scope: str) -> Listing[ListedRepository]:
        listed = await super().repositories(scope)
        self.used += self.pages - 1
        return Listing(listed.items, self.pages, self.whole)


@pytest.mark.case(
    "a list of 200 pages: the other lists are read meanwhile",
    topic="GitHub's events",
    source="GitHub: rate limits",
)
@pytest.mark.parametrize("limit", [15_000, 5_000])
@on_virtual_time
async def test_a_list_of_many_pages_does_not_stop_other_reads(limit: int) -> None:
    controller, _ = await begin(World())
    lists = _LongLists(controller.world.clock.now, limit, since=controller.world.clock.now())
    for n in range(limit // 500):
        lists.queue(f"acme/r{n % 3}", n, n, controller.journal.now)
    reported = controller.world.telemetry.staleness
    task = asyncio.create_task(synchronizing(controller, lists))
    await asyncio.sleep(300.0)
    reported.clear()
    await asyncio.sleep(HOUR - 300.0)
    assert reported["acme"] <= 60.0
    assert lists.asked["repositories"] == 3
    assert 600 < lists.used <= limit * 0.8
    await cancelled(task)


@on_virtual_time
async def test_an_incomplete_list_of_repositories_removes_none() -> None:
    controller, _ = await begin(World())
    lists = _LongLists(controller.world.clock.now, since=controller.world.clock.now())
    lists.queue("acme/r1", 1, 1, controller.journal.now)
    lists.pages = 1
    task = asyncio.create_task(synchronizing(controller, lists))
    await asyncio.sleep(60.0)
    lists.active["acme/r2"] = {}
    del lists.active["acme/r1"]
    del controller.state.jobs[JobId(1)]
    lists.whole = False
    await asyncio.sleep(2000.0)
    lists.broken["acme/r1"] = OperatorError("404")
    await asyncio.sleep(60.0)
    assert lists.failed["acme/r1"] > 0, "it is looked at still"
    await cancelled(task)


@on_virtual_time
async def test_a_list_of_many_pages_uses_the_budget_of_other_reads() -> None:
    """Otherwise the controller would exceed a rate that GitHub's headers do not lower."""
    readings = []
    for pages in (1, 200):
        controller, _ = await begin(World())
        lists = _LongLists(controller.world.clock.now, since=controller.world.clock.now())
        lists.pages, lists.steady = pages, 1.0
        for n in range(60):
            lists.queue(f"acme/r{n % 3}", n, n, controller.journal.now)
        task = asyncio.create_task(synchronizing(controller, lists))
        await asyncio.sleep(1200.0)
        await cancelled(task)
        readings.append(lists.asked.total())
    assert readings[0] == pytest.approx(1200, abs=15)
    assert readings[1] == pytest.approx(1200 - 199, abs=15)


@pytest.mark.parametrize(("free", "share"), [(False, 1.0), (True, 3.0)])
@on_virtual_time
async def test_a_304_answer_does_not_use_the_budget(free: bool, share: float) -> None:
    controller, lists = await with_runs(40)
    lists.free, lists.steady = free, 0.5
    task = asyncio.create_task(synchronizing(controller, lists))
    await asyncio.sleep(300.0)
    await cancelled(task)
    asked = lists.asked.total()
    assert asked >= 300.0 * 0.5 * share - 15.0
    assert free or asked <= 165
