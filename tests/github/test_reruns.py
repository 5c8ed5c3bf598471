"""Reruns of jobs if GitHub fails or one of two Apps lacks access."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from autoscaler.controller.ports.github import GitHubError, OperatorError, RetryLaterError
from autoscaler.controller.ports.reruns import RerunAnswer, RerunUnknownError
from autoscaler.github.client import GitHubClient
from autoscaler.github.refusals import OUTAGE_DELAY
from autoscaler.model.identifiers import JobId
from autoscaler.model.interruptions import RerunOutcome
from tests.github.conftest import World
from tests.github.faults import Fault

WIDGETS = "acme/widgets"
ONE, OTHER, BAD = JobId(1), JobId(2), JobId(3)
FIRST, SECOND = 77, 78
NOT_FOUND = {"message": "Not Found"}
AGAIN = "POST .*/actions/jobs/1/rerun"
ALL_AGAIN = "POST .*/actions/runs/7/rerun-failed-jobs"


@pytest_asyncio.fixture
async def two(world: World) -> AsyncIterator[GitHubClient]:
    """A client of two Apps, and a run with two failed jobs."""
    world.github.installed = {("1", "acme"): FIRST, ("2", "acme"): SECOND}
    show(world, status="completed")
    world.github.lists.jobs[WIDGETS, 7] = [failed(ONE), failed(OTHER)]
    async with world.client((1, 2)) as client:
        yield client


def show(world: World, status: str, attempt: int = 1) -> None:
    run = {"id": 7, "status": status, "run_attempt": attempt, "updated_at": None}
    world.github.lists.runs[WIDGETS] = [run]


def failed(job: JobId) -> dict[str, object]:
    return {"id": job, "run_id": 7, "status": "completed", "conclusion": "failure", "labels": []}


async def ask(client: GitHubClient, *jobs: JobId, attempt: int = 1) -> RerunAnswer:
    return await client.reruns.rerun(WIDGETS, 7, attempt, jobs)


@pytest.mark.case(
    "one App does not see the repository: the other App requests the re-run",
    topic="EC2's machines",
    source="GitHub: re-run a job",
)
@pytest.mark.parametrize("blind", [FIRST, SECOND])
async def test_an_app_without_access_to_the_repository_leaves_the_rerun_to_the_other(
    world: World, two: GitHubClient, blind: int
) -> None:
    """A repository that one App cannot see may still exist."""
    world.github.faults = [
        Fault("/actions/", 404, NOT_FOUND, by=blind, times=99),
        Fault(ALL_AGAIN, 201, b"{}"),
        Fault(AGAIN, 201, b"{}"),
    ]
    assert await ask(two, ONE, OTHER) == RerunAnswer((ONE, OTHER), RerunOutcome.ACCEPTED)
    assert world.github.count(r"GET .*/actions/runs/7/jobs\?filter=latest&per_page=100$") >= 1
    assert await ask(two, ONE) == RerunAnswer((ONE,), RerunOutcome.ACCEPTED)


@pytest.mark.parametrize("status", [404, 410, 422])
async def test_a_job_that_no_app_can_run_again_is_refused(
    world: World, two: GitHubClient, status: int
) -> None:
    world.github.faults = [Fault(AGAIN, status, {"message": "too old"}, times=9)]
    answer = await ask(two, ONE)
    assert (answer.jobs, answer.outcome) == ((ONE,), RerunOutcome.REFUSED)
    assert answer.detail.endswith(f"{status} too old")


async def test_a_refusal_without_a_message_is_described_by_its_status(
    world: World, two: GitHubClient
) -> None:
    world.github.faults = [Fault(AGAIN, 422, {"message": ""})]
    assert await ask(two, ONE) == RerunAnswer((ONE,), RerunOutcome.REFUSED, "422")


@pytest.mark.case(
    "the lost answer was for one of several jobs: the others are still re-run",
    topic="EC2's machines",
    source="GitHub: re-run a job",
)
@pytest.mark.parametrize(
    "fault",
    [
        Fault(AGAIN, 502, b"<html>"),
        Fault(AGAIN, 200, b"<html>"),
        Fault(AGAIN, 404, b"<html>"),
        Fault(AGAIN, cut=True),
    ],
    ids=["502", "html", "proxy", "cut"],
)
async def test_a_lost_answer_names_the_jobs_that_may_have_been_rerun(
    world: World, two: GitHubClient, fault: Fault
) -> None:
    world.github.lists.jobs[WIDGETS, 7].append(failed(BAD))
    world.github.faults = [fault]
    apart = RerunAnswer((ONE, OTHER), None, "other jobs of the run failed too", apart=True)
    assert await ask(two, ONE, OTHER) == apart, "of three that failed two are ours"
    assert world.github.count("POST .*/rerun") == 0
    with pytest.raises(RerunUnknownError) as caught:
        await ask(two, ONE)
    assert caught.value.jobs == (ONE,)
    assert caught.value.retry_after == OUTAGE_DELAY
    assert world.github.count(AGAIN) == 1


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault("GET .*/actions/runs/7$", 502, b"<html>", times=9), RetryLaterError),
        (Fault("GET .*/actions/runs/7/jobs", 502, b"<html>", times=9), RetryLaterError),
        (Fault(ALL_AGAIN, 429, {}, {"Retry-After": "40"}, times=2), RetryLaterError),
        (Fault(ALL_AGAIN, 403, {"message": "no permission"}, times=2), OperatorError),
    ],
    ids=["run", "jobs", "limit", "permission"],
)
async def test_a_rerun_that_did_not_happen_has_no_unknown_outcome(
    world: World, two: GitHubClient, fault: Fault, error: type[GitHubError]
) -> None:
    world.github.faults = [fault]
    with pytest.raises(error) as caught:
        await ask(two, ONE, OTHER)
    assert not isinstance(caught.value, RerunUnknownError)


@pytest.mark.case(
    "a cached answer shows the earlier attempt as completed",
    topic="EC2's machines",
    source="GitHub: re-run a job",
)
@pytest.mark.parametrize(
    ("status", "attempt"), [("in_progress", 2), ("queued", 1), ("completed", 1)]
)
async def test_no_rerun_is_requested_before_the_attempt_is_completed(
    world: World, two: GitHubClient, status: str, attempt: int
) -> None:
    """A cached answer may show the previous attempt, as completed."""
    show(world, status, attempt)
    answer = await ask(two, ONE, attempt=2)
    assert (answer.jobs, answer.outcome) == ((ONE,), None)
    assert world.github.count("POST .*/rerun") == 0


async def test_a_newer_attempt_supersedes_the_rerun(world: World, two: GitHubClient) -> None:
    show(world, "in_progress", 3)
    reported = "the run is at attempt 3"
    assert await ask(two, ONE) == RerunAnswer((ONE,), RerunOutcome.SUPERSEDED, reported)
    assert world.github.count("POST .*/rerun") == 0
