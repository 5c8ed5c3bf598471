"""Reruns of jobs if GitHub fails or one of two Apps lacks access."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from autoscaler.controller.ports.github import (
    GitHubError,
    OperatorError,
    RerunAnswer,
    RerunUnknownError,
    RetryLaterError,
)
from autoscaler.github.client import GitHubClient
from autoscaler.github.requests.outcomes import OUTAGE_DELAY
from autoscaler.model.identifiers import JobId
from autoscaler.model.machines.interruptions import RerunOutcome
from lab.github.settings import AnswerFault
from lab.github.workflows import FIRST_JOB
from tests.github.conftest import World, job_spec
from tests.github.faults import changed, cut, fault

WIDGETS = "acme/widgets"
ONE, OTHER = JobId(FIRST_JOB), JobId(FIRST_JOB + 1)
FIRST, SECOND = 77, 78
NOT_FOUND = {"message": "Not Found"}
AGAIN = f"POST .*/actions/jobs/{ONE}/rerun"
ALL_AGAIN = "POST .*/actions/runs/7/rerun-failed-jobs"


@pytest_asyncio.fixture
async def two(world: World) -> AsyncIterator[GitHubClient]:
    """A client of two Apps, and a run with two failed jobs."""
    world.administration.install(2, "acme", SECOND)
    fail(world, "one", "other")
    async with world.client((1, 2)) as client:
        yield client


def show(world: World, status: str, attempt: int = 1) -> None:
    said = {"status": status, "run_attempt": attempt}
    world.github.inject_faults(changed("GET .*/actions/runs/7$", lambda shown: shown | said))


def fail(world: World, *names: str) -> None:
    """Let jobs with these names fail in the run."""
    for job in world.github.push([job_spec(name, WIDGETS, run_id=7) for name in names]):
        world.github.cancel(job)


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
    world.github.inject_faults(fault("/actions/", 404, NOT_FOUND, by=blind, times=99))
    assert await ask(two, ONE, OTHER) == RerunAnswer((ONE, OTHER), RerunOutcome.ACCEPTED)
    assert world.traffic.count(r"GET .*/actions/runs/7/jobs\?filter=latest&per_page=100$") >= 1
    again = world.github.jobs[2:]
    assert [job.spec.name for job in again] == ["one", "other"]
    for job in again:
        world.github.cancel(job)
    alone = JobId(again[0].id)
    assert await ask(two, alone, attempt=2) == RerunAnswer((alone,), RerunOutcome.ACCEPTED)
    assert [job.spec.name for job in world.github.jobs[4:]] == ["one"]


@pytest.mark.parametrize("status", [404, 410, 422])
async def test_a_job_that_no_app_can_run_again_is_refused(
    world: World, two: GitHubClient, status: int
) -> None:
    world.github.inject_faults(fault(AGAIN, status, {"message": "too old"}, times=9))
    answer = await ask(two, ONE)
    assert (answer.jobs, answer.outcome) == ((ONE,), RerunOutcome.REFUSED)
    assert answer.detail.endswith(f"{status} too old")


async def test_a_refusal_without_a_message_is_described_by_its_status(
    world: World, two: GitHubClient
) -> None:
    world.github.inject_faults(fault(AGAIN, 422, {"message": ""}))
    assert await ask(two, ONE) == RerunAnswer((ONE,), RerunOutcome.REFUSED, "422")


@pytest.mark.case(
    "the lost answer was for one of several jobs: the others are still re-run",
    topic="EC2's machines",
    source="GitHub: re-run a job",
)
@pytest.mark.parametrize(
    "fault",
    [
        fault(AGAIN, 502, b"<html>"),
        fault(AGAIN, 200, b"<html>"),
        fault(AGAIN, 404, b"<html>"),
        cut(AGAIN),
    ],
    ids=["502", "html", "proxy", "cut"],
)
async def test_a_lost_answer_names_the_jobs_that_may_have_been_rerun(
    world: World, two: GitHubClient, fault: AnswerFault
) -> None:
    fail(world, "bad")
    world.github.inject_faults(fault)
    apart = RerunAnswer((ONE, OTHER), None, "other jobs of the run failed too", apart=True)
    assert await ask(two, ONE, OTHER) == apart, "of three that failed two are ours"
    assert world.traffic.count("POST .*/rerun") == 0
    with pytest.raises(RerunUnknownError) as caught:
        await ask(two, ONE)
    assert caught.value.jobs == (ONE,)
    assert caught.value.retry_after == OUTAGE_DELAY
    assert world.traffic.count(AGAIN) == 1


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (fault("GET .*/actions/runs/7$", 502, b"<html>", times=9), RetryLaterError),
        (fault("GET .*/actions/runs/7/jobs", 502, b"<html>", times=9), RetryLaterError),
        (fault(ALL_AGAIN, 429, {}, {"Retry-After": "40"}, times=2), RetryLaterError),
        (fault(ALL_AGAIN, 403, {"message": "no permission"}, times=2), OperatorError),
    ],
    ids=["run", "jobs", "limit", "permission"],
)
async def test_a_rerun_that_did_not_happen_has_no_unknown_outcome(
    world: World, two: GitHubClient, fault: AnswerFault, error: type[GitHubError]
) -> None:
    world.github.inject_faults(fault)
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
    assert world.traffic.count("POST .*/rerun") == 0


async def test_a_newer_attempt_supersedes_the_rerun(world: World, two: GitHubClient) -> None:
    show(world, "in_progress", 3)
    reported = "the run is at attempt 3"
    assert await ask(two, ONE) == RerunAnswer((ONE,), RerunOutcome.SUPERSEDED, reported)
    assert world.traffic.count("POST .*/rerun") == 0
