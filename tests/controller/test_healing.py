"""Jobs without webhooks: how soon a machine is requested, and how many calls to GitHub that needs.

These tests run the benchmark's fleet in virtual time. GitHub never answers 304, which is the worst case.
"""

import asyncio
from collections import Counter

import pytest

from autoscaler.github.requests.budget import RESERVES
from autoscaler.github.requests.exchange import Importance
from autoscaler.model.identifiers import JobId
from autoscaler.model.jobs.job import QUEUED_AT_MOST, JobState
from benchmarks.healing import Load, heal
from benchmarks.steady_fleet import Steady, steady
from benchmarks.virtual_fleet import LABEL, REPOSITORIES, Setting, VirtualFleet
from tests.controller.agents import queue
from tests.controller.controllers import Controller, World
from tests.controller.virtual_time import on_virtual_time

pytestmark = pytest.mark.systems

SECONDS = 600.0
FOR_LISTS = 1.0 - RESERVES[Importance.SYNC]


@pytest.mark.case(
    "a `queued` webhook is lost, and no log shows it as failed",
    topic="GitHub's events",
    source="ARC#2788; ubicloud#1042; kent8192/reinhardt-web#4253",
)
@pytest.mark.parametrize(("limit", "runs"), [(5_000, 9), (15_000, 75)])
@on_virtual_time
async def test_without_webhooks_a_machine_is_requested_for_each_job_within_a_minute(
    limit: int, runs: int
) -> None:
    found = await heal(Load(limit, runs, seconds=SECONDS))
    assert found.all_jobs.jobs == 150
    assert found.all_jobs.longest <= 60.0
    assert found.staleness <= 60.0
    assert 0 < found.most_in_an_hour <= limit * FOR_LISTS


@pytest.mark.case(
    "a fifth of the webhooks is lost",
    topic="GitHub's events",
    source="GitHub: failed deliveries",
)
@pytest.mark.parametrize(("limit", "runs"), [(5_000, 9), (15_000, 75)])
@on_virtual_time
async def test_with_a_fifth_of_the_webhooks_lost_nearly_every_job_is_found_within_a_minute(
    limit: int, runs: int
) -> None:
    found = await heal(Load(limit, runs, lost=0.2, every=3.0, seconds=SECONDS))
    assert found.all_jobs.jobs == 200
    assert found.all_jobs.p50 <= 3.0
    assert found.all_jobs.p99 <= 60.0


@pytest.mark.case(
    "more active runs than calls: new runs come first, the others in turn",
    topic="GitHub's events",
    source="GitHub: rate limits",
)
@pytest.mark.parametrize(("limit", "runs", "longest"), [(15_000, 300, 180.0), (5_000, 75, 300.0)])
@on_virtual_time
async def test_if_calls_are_scarce_new_runs_are_read_first_and_the_rest_in_turn(
    limit: int, runs: int, longest: float
) -> None:
    found = await heal(Load(limit, runs, seconds=SECONDS))
    assert found.in_new_runs.jobs > 30
    assert found.in_new_runs.longest <= 60.0
    assert 60.0 < found.all_jobs.longest <= longest
    assert found.staleness > 60.0, "and it is reported"
    assert found.most_in_an_hour <= limit * FOR_LISTS


@on_virtual_time
async def test_a_busy_fleet_needs_little_more_than_one_registration_call_for_each_job() -> None:
    load = Steady(5_000, jobs_an_hour=600.0, works=200.0, warm_up=1200.0, seconds=1800.0)
    found = await steady(load)
    assert found.jobs > 200
    assert found.calls["register"] == pytest.approx(found.jobs, rel=0.2)
    assert set(found.calls) <= {
        "register",
        "deliveries",
        "sync repositories",
        "sync runners",
        "sync runs",
        "sync jobs",
    }, "no runner is read, and none is removed"
    assert found.unchanged["sync runs"] > 0
    assert not found.refused
    assert found.counted <= 5_000 * FOR_LISTS
    assert found.queued_to_started.longest <= 180.0


@pytest.mark.case(
    "registrations, checks and deletions go before lists",
    topic="GitHub's REST API",
    source="GitHub: using the REST API",
)
@on_virtual_time
async def test_with_few_calls_left_lists_stop_and_jobs_still_get_registrations() -> None:
    limit = 5_000
    setting = Setting(limit, REPOSITORIES, lost=0.0, always_counts=True, machines_boot=True)
    fleet = VirtualFleet(setting)
    async with fleet.at_work():
        await asyncio.sleep(600.0)
        github = fleet.github
        github.used = round(limit * FOR_LISTS)
        before = Counter(github.calls)
        jobs = [fleet.actions.queue(REPOSITORIES[0], n, LABEL, 120.0) for n in range(1, 21)]
        await asyncio.sleep(900.0)
        assert {job.state for job in jobs} == {JobState.COMPLETED}
        assert github.calls - before == {"register": 20}
        await asyncio.sleep(2400.0)  # another hour has begun
        assert (github.calls - before)["sync runs"] > 0


@pytest.mark.case(
    "a job is still queued a day after its last `queued`",
    topic="GitHub's events",
    source="GitHub: Actions limits",
)
@on_virtual_time
async def test_a_job_expires_a_day_after_its_last_queued_event_although_github_is_not_read() -> (
    None
):
    controller = Controller(World())
    await controller.resume()
    await queue(controller, 1)
    await controller.turn()
    assert controller.state.queues
    await asyncio.sleep(QUEUED_AT_MOST - 60.0)
    await controller.turn()
    assert controller.state.queues, "a day is not over"
    await asyncio.sleep(60.0)
    await controller.turn()
    job = controller.state.jobs[JobId(1)]
    assert (job.state, job.conclusion) == (JobState.COMPLETED, "stale")
    assert not controller.state.queues
