"""The controller's GitHub client with the lab's GitHub: its requests, and its reaction to each fault."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from autoscaler.controller.ports.github import (
    OperatorError,
    RegistrationOutcomeUnknownError,
    RetryLaterError,
)
from autoscaler.github.client import GitHubClient
from autoscaler.github.settings import AppKey, GitHubSettings
from autoscaler.model.identifiers import JobId, RunnerName
from autoscaler.model.jobs.job import JobState
from lab.github.settings import AnswerFault
from lab.github.shapes import RUNNER_VERSION
from tests.github.doubles import ManualClock, RememberingTelemetry
from tests.lab.github.description import Exchange, description
from tests.lab.github.harness import APP, EPOCH, Client, Key, Listener, job
from tests.patience import PATIENCE

Make = Callable[..., Awaitable[Client]]
REGISTER = "POST /orgs/{org}/actions/runners/generate-jitconfig"
LIST = "GET /orgs/{org}/actions/runners"
NAME = RunnerName("ci-gpu-1")


@dataclass
class Between:
    """A proxy before a lab's GitHub that keeps every exchange."""

    lab_url: str
    session: aiohttp.ClientSession
    exchanges: list[Exchange] = field(default_factory=list)

    async def pass_on(self, request: web.Request) -> web.Response:
        body = await request.read()
        async with self.session.request(
            request.method,
            self.lab_url + request.path_qs,
            data=body or None,
            headers={"Authorization": request.headers["Authorization"]},
        ) as answer:
            data = await answer.read()
            said: Any = json.loads(body) if body else None
            reported: Any = json.loads(data) if data else None
            self.exchanges.append(
                Exchange(request.method, request.path_qs, said, answer.status, {}, reported)
            )
            kind = answer.content_type if data else None
            return web.Response(body=data, status=answer.status, content_type=kind)


Speak = Callable[..., GitHubClient]


@pytest.fixture
async def speak(key: Key) -> AsyncIterator[Speak]:
    """A client of the product for the GitHub at a URL."""
    async with AsyncExitStack() as stack:

        def start(url: str, timeout: float = 20.0) -> GitHubClient:
            app = AppKey(APP, key.private.decode())
            settings = GitHubSettings(url, (app,), timeout=timeout)
            client = GitHubClient(settings, ManualClock(EPOCH), RememberingTelemetry())
            stack.push_async_callback(client.close)
            return client

        yield start


@pytest.mark.systems
@pytest.mark.case(
    "the controller's requests and the lab's answers conform to GitHub's OpenAPI description",
    topic="GitHub's REST API",
    source="@octokit/openapi",
)
async def test_every_request_of_the_controller_matches_githubs_description(
    make: Make, speak: Speak, listener: Listener
) -> None:
    lab = await make(listener.url, wall=lambda: EPOCH)
    between = Between(lab.lab.api_url, lab.session)
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", between.pass_on)
    proxy = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await proxy.setup()
    try:
        await web.TCPSite(proxy, "127.0.0.1", 0).start()
        client = speak(f"http://127.0.0.1:{proxy.addresses[0][1]}")
        registered = await client.register("org:acme", "gpu", NAME, ("linux.gpu",))
        found = await client.find_runner("org:acme", NAME)
        assert found is not None
        assert found.github_id == registered.github_id
        assert await client.read_runner("org:acme", registered.github_id) == found
        assert await client.delete_runner("org:acme", registered.github_id)
        await client.register("repo:acme/rocket", "Default", NAME, ("linux.gpu",))
        listener.status = 500
        (pushed,) = lab.lab.push([job()])
        seen = await client.read_job("acme/rocket", JobId(pushed.id), EPOCH)
        assert seen is not None
        assert seen.state is JobState.QUEUED
        await lab.lab.delivered()
        assert (await client.redeliver_failed(EPOCH - 60.0)).asked == 1
    finally:
        await proxy.cleanup()
    routes = set()
    for exchange in between.exchanges:
        routes.add(description().route(exchange.method, exchange.path))
        assert description().request_faults(exchange) == [], exchange
        assert exchange.status < 300, exchange
    assert len(routes) >= 10


@pytest.mark.case(
    "a registration request without a clear answer: 5xx, HTML, broken JSON, timeout, connection "
    "closed or cut",
    topic="GitHub's REST API",
    source="runs-on#30",
)
@pytest.mark.parametrize(
    "fault",
    [
        AnswerFault("status", REGISTER, status=502, done=True),
        AnswerFault("html", REGISTER, status=503, done=True),
        AnswerFault("html_as_json", REGISTER, status=200, done=True),
        AnswerFault("dropped", REGISTER, done=True),
        AnswerFault("stall", REGISTER, done=True),
        AnswerFault("cut", REGISTER),
        AnswerFault("garbled", REGISTER),
    ],
    ids=lambda fault: fault.kind if isinstance(fault, AnswerFault) else "",
)
async def test_a_registration_whose_answer_is_lost_is_looked_up(
    make: Make, speak: Speak, fault: AnswerFault
) -> None:
    limit = 1.0 if fault.kind == "stall" else PATIENCE
    while True:
        lab = await make(base_path="/api/v3", wall=lambda: EPOCH)
        lab.lab.inject_faults(fault)
        client = speak(lab.lab.api_url, timeout=limit)
        registering = client.register("org:acme", "Default", NAME, ("linux.gpu",))
        outcome = await asyncio.gather(registering, return_exceptions=True)
        if lab.lab.registered_ever or limit >= PATIENCE:
            break
        limit *= 2  # the host was too slow even for the request
    assert [type(one) for one in outcome] == [RegistrationOutcomeUnknownError]
    client = speak(lab.lab.api_url, timeout=PATIENCE)
    again = "dropped" if fault.kind == "stall" else fault.kind
    lab.lab.inject_faults(AnswerFault(again, LIST, status=502))
    found = await client.find_runner("org:acme", NAME)
    assert found is not None
    assert lab.lab.registered_ever == 1
    assert lab.lab.spoiled.total() == 2


ENDS = "GET /orgs/{org}/actions/runners/deprecations/{version}"


async def test_the_end_of_a_runner_version_is_read_at_any_kind_of_scope(
    make: Make, speak: Speak
) -> None:
    lab = await make(wall=lambda: EPOCH)
    client = speak(lab.lab.api_url)
    lab.lab.end_runner_version("2.300.0", EPOCH + 3600.0)
    for scope in ("org:acme", "repo:acme/rocket"):
        assert await client.lists.runner_version_end(scope, "2.300.0") == EPOCH + 3600.0
        assert await client.lists.runner_version_end(scope, RUNNER_VERSION) is None
        with pytest.raises(OperatorError, match="404 Not Found"):
            await client.lists.runner_version_end(scope, "2.1.0")


async def test_an_enterprise_server_knows_no_end(make: Make, speak: Speak) -> None:
    lab = await make(base_path="/api/v3", wall=lambda: EPOCH)
    client = speak(lab.lab.api_url)
    with pytest.raises(OperatorError, match="404 Not Found"):
        await client.lists.runner_version_end("org:acme", RUNNER_VERSION)


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (AnswerFault("status", ENDS, times=3, status=502), RetryLaterError),
        (AnswerFault("html", ENDS, times=3, status=503), RetryLaterError),
        (AnswerFault("dropped", ENDS, times=6), RetryLaterError),
        (AnswerFault("garbled", ENDS, times=3), RetryLaterError),
        (AnswerFault("html_as_json", ENDS, times=3, status=404), RetryLaterError),
    ],
    ids=lambda one: one.kind if isinstance(one, AnswerFault) else "",
)
async def test_a_broken_answer_about_a_runner_version_is_an_error_and_later_read(
    make: Make, speak: Speak, fault: AnswerFault, error: type[Exception]
) -> None:
    lab = await make(wall=lambda: EPOCH)
    lab.lab.end_runner_version(RUNNER_VERSION, EPOCH)
    client = speak(lab.lab.api_url, timeout=PATIENCE)
    lab.lab.inject_faults(fault)
    with pytest.raises(error):
        await client.lists.runner_version_end("org:acme", RUNNER_VERSION)
    lab.lab.inject_faults()
    assert await client.lists.runner_version_end("org:acme", RUNNER_VERSION) == EPOCH
