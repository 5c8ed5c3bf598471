"""Requests that change something at GitHub are sent only while the process leads."""

import ast
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from autoscaler import github
from autoscaler.controller.ports.github import (
    GitHubError,
    RegistrationOutcomeUnknownError,
    RerunUnknownError,
    RetryLaterError,
)
from autoscaler.controller.ports.replicas import Leads
from autoscaler.github.client import GitHubClient
from autoscaler.github.settings import AppKey, GitHubSettings
from autoscaler.model.identifiers import JobId, RunnerName
from lab.github.deliveries import FIRST_DELIVERY
from lab.github.workflows import FIRST_JOB
from tests.github.conftest import World, job_spec
from tests.github.doubles import START
from tests.github.faults import changed, hang

Act = Callable[[GitHubClient], Awaitable[object]]

NAME = RunnerName("ci-gpu-0a1b-2c3d-1")
JOBS = (JobId(FIRST_JOB), JobId(FIRST_JOB + 1))
REGISTER = "POST .*/generate-jitconfig"
CHANGES = "(POST|PUT|PATCH|DELETE) .*(?<!/access_tokens)$"
"""Matches all requests that change something. A token is only read, although by a POST."""


async def rerun_one(client: GitHubClient) -> object:
    return await client.reruns.rerun("acme/widgets", 7, 1, JOBS[:1])


async def rerun_both(client: GitHubClient) -> object:
    return await client.reruns.rerun("acme/widgets", 7, 1, JOBS)


async def redeliver(client: GitHubClient) -> object:
    return await client.redeliver_failed(START - 3600)


async def register(client: GitHubClient) -> object:
    return await client.register("org:acme", "gpu", NAME, ("gpu",))


async def delete(client: GitHubClient) -> object:
    return await client.delete_runner("org:acme", 1)


MUTATING: dict[str, tuple[Act, str, type[GitHubError]]] = {
    "register": (register, REGISTER, RetryLaterError),
    "delete_runner": (delete, "DELETE .*/runners/1", RetryLaterError),
    "rerun of one job": (rerun_one, f"POST .*/jobs/{FIRST_JOB}/rerun", RerunUnknownError),
    "rerun of two jobs": (rerun_both, "POST .*/runs/7/rerun-failed-jobs", RerunUnknownError),
    "redeliver_failed": (
        redeliver,
        f"POST .*/deliveries/{FIRST_DELIVERY}/attempts",
        RetryLaterError,
    ),
}
"""Each operation that changes something, its request, and the error of a process that does not lead."""

READING: dict[str, tuple[Act, str]] = {
    "find_runner": (lambda client: client.find_runner("org:acme", NAME), "GET .*/runners"),
    "read_runner": (lambda client: client.read_runner("org:acme", 1), "GET .*/runners/1"),
    "read_job": (
        lambda client: client.read_job("acme/widgets", JOBS[0], START),
        f"GET .*/jobs/{FIRST_JOB}",
    ),
    "run_origin": (lambda client: client.run_origin("acme/widgets", 7), "GET .*/runs/7"),
    "runner_group": (lambda client: client.runner_group("org:acme", "gpu"), "GET .*/runner-groups"),
}


@pytest.fixture(autouse=True)
def _failed(world: World) -> None:
    """A run with two failed jobs, which can be run again, and a failed delivery."""
    for job in world.github.push([job_spec(name, "acme/widgets", run_id=7) for name in "ab"]):
        world.github.cancel(job)
    said = {"status": "completed", "run_attempt": 1}
    world.github.inject_faults(changed("GET .*/actions/runs/7$", lambda shown: shown | said))
    made = world.administration.log_delivery(1, "d1", START - 600, redelivery=False)
    made.status, made.status_code = "Invalid HTTP Response: 502", 502


@asynccontextmanager
async def leading(world: World, leads: Leads) -> AsyncIterator[GitHubClient]:
    settings = GitHubSettings(world.url, (AppKey(1, world.keys.private_pem),), timeout=10.0)
    client = GitHubClient(settings, world.clock, world.telemetry, leads=leads)
    try:
        yield client
    finally:
        await client.close()


@pytest.mark.parametrize(("act", "request_", "error"), MUTATING.values(), ids=MUTATING)
async def test_a_process_that_does_not_lead_changes_nothing(
    world: World, act: Act, request_: str, error: type[GitHubError]
) -> None:
    async with leading(world, lambda: 0.0) as client:
        with pytest.raises(error, match="not_leading: this process no longer leads the fleet"):
            await act(client)
    assert world.traffic.count(CHANGES) == 0
    async with leading(world, lambda: 10.0) as client:
        await act(client)
    assert world.traffic.count(CHANGES) == world.traffic.count(request_) == 1


@pytest.mark.parametrize(("act", "request_"), READING.values(), ids=READING)
async def test_a_process_that_does_not_lead_reads(world: World, act: Act, request_: str) -> None:
    async with leading(world, lambda: 0.0) as client:
        await act(client)
    assert world.traffic.count(request_)


async def test_leadership_is_asked_after_everything_that_may_wait(world: World) -> None:
    """The lease ends while the token and the runner group are read."""

    def until_the_group_is_read() -> float:
        return 0.0 if world.traffic.count("GET .*/runner-groups") else math.inf

    async with leading(world, until_the_group_is_read) as client:
        with pytest.raises(RetryLaterError, match="not_leading"):
            await register(client)
    assert world.traffic.count("POST .*/access_tokens") == 1
    assert world.traffic.count(REGISTER) == 0


async def test_no_answer_is_awaited_for_longer_than_the_process_leads(world: World) -> None:
    """The connection is open already, so the request is sent."""
    world.github.inject_faults(hang(REGISTER))
    async with leading(world, lambda: 0.5) as client:
        with pytest.raises(RegistrationOutcomeUnknownError, match=r"no answer in 0\.5 s"):
            await register(client)


def test_each_request_that_changes_something_says_so() -> None:
    """Without `effect` it would count as one that reads, and be sent by a process that does not lead."""
    wrong = []
    for path in sorted(Path(github.__path__[0]).rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(call, ast.Call) and getattr(call.func, "id", "") == "Request"):
                continue
            method = getattr(call.args[0], "value", "?") if call.args else "?"
            if method != "GET" and "effect" not in {one.arg for one in call.keywords}:
                wrong.append((path.name, method))
    assert wrong == [("authentication.py", "POST")], "an access token changes nothing"
