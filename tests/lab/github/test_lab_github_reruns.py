"""The controller's reruns at the lab's GitHub: when, which jobs, and how often."""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from autoscaler.controller.ports.github import OperatorError, RetryLaterError
from autoscaler.controller.system import SystemClock
from autoscaler.github.client import GitHubClient
from autoscaler.github.reruns import JobReruns
from autoscaler.github.settings import AppKey, GitHubSettings
from autoscaler.model.identifiers import JobId
from autoscaler.model.machines.interruptions import RerunOutcome
from lab.github.records import Job
from lab.github.settings import AnswerFault
from tests.github.doubles import RememberingTelemetry
from tests.lab.github.harness import APP, REPOSITORY, Client, Key, job

Make = Callable[..., Awaitable[Client]]
RERUN = "POST /repos/{owner}/{repo}/actions/jobs/{job_id}/rerun"


@pytest.fixture
async def lab(make: Make) -> Client:
    return await make()


@pytest.fixture
async def reruns(lab: Client, key: Key) -> AsyncIterator[JobReruns]:
    settings = GitHubSettings(lab.lab.api_url, (AppKey(APP, key.private.decode()),))
    client = GitHubClient(settings, SystemClock(), RememberingTelemetry())
    yield client.reruns
    await client.close()


async def end(lab: Client, conclusion: str) -> None:
    """Have a runner take the next job and end it."""
    runner = await lab.runner(f"r-{sum(lab.lab.calls.values())}")
    number = await runner.take()
    assert number is not None
    await runner.send("started", job=number)
    await runner.send("completed", job=number, conclusion=conclusion)


def names(lab: Client) -> list[tuple[str, int]]:
    return [(one.spec.name, one.attempt) for one in lab.lab.jobs]


async def ask(reruns: JobReruns, *jobs: Job, attempt: int = 1) -> RerunOutcome | None:
    numbers = [JobId(one.id) for one in jobs]
    answer = await reruns.rerun(REPOSITORY, jobs[0].run.id, attempt, numbers)
    assert set(answer.jobs) <= set(numbers)
    return answer.outcome


@pytest.mark.case(
    "GitHub refuses to re-run a job until its run is complete",
    topic="EC2's machines",
    source="GitHub: re-run a job",
)
async def test_a_run_that_is_not_completed_is_not_rerun(lab: Client, reruns: JobReruns) -> None:
    first, _ = lab.lab.push([job("one"), job("two")])
    await end(lab, "failure")
    assert await ask(reruns, first) is None
    path = f"/repos/{REPOSITORY}/actions/jobs/{first.id}/rerun"
    assert (await lab.ask("POST", path)).status == 403
    await end(lab, "success")
    assert await ask(reruns, first) is RerunOutcome.ACCEPTED
    assert names(lab) == [("one", 1), ("two", 1), ("one", 2)]


@pytest.mark.case(
    "many jobs of a run die at once, beside some that failed by themselves",
    topic="EC2's machines",
    source="GitHub: re-run failed jobs",
)
async def test_if_other_jobs_failed_too_only_the_requested_job_is_rerun(
    lab: Client, reruns: JobReruns
) -> None:
    first, second, _ = lab.lab.push([job("one"), job("two"), job("bad")])
    for _ in range(3):
        await end(lab, "failure")
    answer = await reruns.rerun(REPOSITORY, first.run.id, 1, [JobId(first.id), JobId(second.id)])
    assert (answer.outcome, answer.apart) == (None, True)
    assert names(lab)[3:] == []
    assert await ask(reruns, first) is RerunOutcome.ACCEPTED
    assert names(lab)[3:] == [("one", 2)]


@pytest.mark.case(
    "many jobs of a run die at once, beside some that failed by themselves",
    topic="EC2's machines",
    source="GitHub: re-run failed jobs",
)
async def test_all_failed_jobs_of_a_run_are_rerun_with_one_request(
    lab: Client, reruns: JobReruns
) -> None:
    first, second, _ = lab.lab.push([job("one"), job("two"), job("good")])
    for conclusion in ("failure", "failure", "success"):
        await end(lab, conclusion)
    answer = await reruns.rerun(REPOSITORY, first.run.id, 1, [JobId(first.id), JobId(second.id)])
    assert answer.outcome is RerunOutcome.ACCEPTED
    assert set(answer.jobs) == {first.id, second.id}
    assert names(lab)[3:] == [("one", 2), ("two", 2)]


@pytest.mark.case(
    "a person has re-run the job already",
    topic="EC2's machines",
    source="GitHub: re-run a job",
)
async def test_a_run_that_someone_else_reran_is_not_rerun(lab: Client, reruns: JobReruns) -> None:
    (first,) = lab.lab.push([job("one")])
    await end(lab, "failure")
    lab.lab.rerun_failed(first.run)
    assert await ask(reruns, first) is RerunOutcome.SUPERSEDED
    assert names(lab) == [("one", 1), ("one", 2)]


@pytest.mark.case(
    "a permission is lost while a run waits for its re-run: its 404 is not final",
    topic="EC2's machines",
    source="GitHub: troubleshooting the REST API",
)
async def test_a_404_for_a_run_is_not_a_refusal(lab: Client, reruns: JobReruns) -> None:
    """The run may be deleted, or the App lost a permission for a while: the controller asks again."""
    lab.lab.push([job("one")])
    with pytest.raises(OperatorError, match="404 Not Found"):
        await reruns.rerun(REPOSITORY, 1, 1, [JobId(1)])


async def test_a_job_that_is_not_of_the_run_is_refused(lab: Client, reruns: JobReruns) -> None:
    (first,) = lab.lab.push([job("one")])
    await end(lab, "failure")
    answer = await reruns.rerun(REPOSITORY, first.run.id, 1, [JobId(7)])
    assert answer.outcome is RerunOutcome.REFUSED
    assert answer.detail.endswith("404 Not Found")


async def test_a_limit_is_reported_and_nothing_is_done(lab: Client, reruns: JobReruns) -> None:
    (first,) = lab.lab.push([job("one")])
    await end(lab, "failure")
    lab.lab.inject_faults(AnswerFault("status", RERUN, status=403, retry_after=7))
    with pytest.raises(RetryLaterError) as refusal:
        await ask(reruns, first)
    assert 6 < refusal.value.retry_after <= 7
    assert names(lab) == [("one", 1)]


@pytest.mark.case(
    "the answer to a re-run request is lost: it is not repeated",
    topic="EC2's machines",
    source="GitHub: re-run a job",
)
async def test_a_rerun_whose_answer_is_lost_shows_in_the_attempt_of_the_run(
    lab: Client, reruns: JobReruns
) -> None:
    (first,) = lab.lab.push([job("one")])
    await end(lab, "failure")
    lab.lab.inject_faults(AnswerFault("dropped", RERUN, done=True))
    with pytest.raises(RetryLaterError):
        await ask(reruns, first)
    assert await ask(reruns, first) is RerunOutcome.SUPERSEDED
    assert names(lab) == [("one", 1), ("one", 2)]
