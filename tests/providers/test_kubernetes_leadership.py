"""Requests that change something in a cluster are sent only while the process leads."""

import asyncio
import json
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer

from autoscaler.controller.ports.provider import OutcomeUnknownError, ProofRefusedError
from autoscaler.controller.ports.replicas import Leads
from autoscaler.providers.kubernetes.api import paths
from autoscaler.providers.kubernetes.api.client import KubernetesApi
from autoscaler.providers.kubernetes.launching import launch_pods, launch_text
from autoscaler.providers.kubernetes.listing.machines import identity
from autoscaler.providers.kubernetes.provider import KubernetesProvider
from autoscaler.providers.kubernetes.settings import KubernetesSettings
from tests.providers.doubles import ManualClock, RememberingTelemetry
from tests.providers.kubernetes_pods import make_order, make_pod, make_settings

Act = Callable[[KubernetesProvider, KubernetesApi], Awaitable[object]]
POD = make_pod({"phase": "Running"})
NAME, MACHINE = identity(POD).name, identity(POD).machine
NOT_LEADING = "not sent, because this process no longer leads the fleet"


@dataclass
class Cluster:
    """An API server with one pod: remembers the requests, and may refuse the first credentials."""

    asked: list[str] = field(default_factory=list)
    expired: int = 0
    hangs: bool = False

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(f"{request.method} {request.path.rpartition('/')[2]}")
        if self.hangs:
            await asyncio.Event().wait()
        if self.expired:
            self.expired -= 1
            return web.json_response({}, status=401)
        if request.method == "GET" and request.path.endswith("/pods"):
            return web.json_response(
                {"kind": "PodList", "metadata": {"resourceVersion": "5"}, "items": [POD]}
            )
        return web.json_response(POD)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest_asyncio.fixture
async def settings(cluster: Cluster, tmp_path: Path) -> AsyncIterator[KubernetesSettings]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", cluster.answer)
    running = TestServer(app, host="127.0.0.1")
    await running.start_server()
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": str(running.make_url("")).rstrip("/")}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
        "contexts": [{"name": "test", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "test",
    }
    config = tmp_path / "kubeconfig"
    config.write_text(json.dumps(content))
    yield replace(make_settings(), context="test", kubeconfig=config)
    await running.close()


@asynccontextmanager
async def leading(
    settings: KubernetesSettings, leads: Leads
) -> AsyncIterator[tuple[KubernetesProvider, KubernetesApi]]:
    telemetry, clock = RememberingTelemetry(), ManualClock()
    provider = KubernetesProvider(settings, telemetry, clock, leads=leads)
    api = KubernetesApi(settings, telemetry, clock, leads)
    try:
        yield provider, api
    finally:
        await provider.close()
        await api.close()


async def launch(provider: KubernetesProvider, _: KubernetesApi) -> object:
    return await provider.launch(await provider.prepare(make_order()))


async def verify(provider: KubernetesProvider, _: KubernetesApi) -> object:
    with pytest.raises(ProofRefusedError):
        await provider.verify(b"a.b.c")
    return None


async def watch(_: KubernetesProvider, api: KubernetesApi) -> object:
    async with api.lines(paths.pods("runners"), {"watch": "1"}, 10.0) as lines:
        return [line async for line in lines]


async def machines(provider: KubernetesProvider, _: KubernetesApi) -> object:
    return [page async for page in provider.machines()]


MUTATING: dict[str, tuple[Act, str]] = {
    "launch": (launch, "POST pods"),
    "terminate": (
        lambda provider, _: provider.terminate([MACHINE]),
        f"DELETE {NAME}",
    ),
    "protect": (lambda provider, _: provider.protect(MACHINE), f"PATCH {NAME}"),
}
"""Each operation that changes something, and its request."""

READING: dict[str, tuple[Act, str]] = {
    "open": (lambda provider, _: provider.open(), "GET pods"),
    "machines": (machines, "GET pods"),
    "watch": (watch, "GET pods"),
    "console": (lambda provider, _: provider.console(MACHINE), f"GET {NAME}"),
    "verify": (verify, "POST tokenreviews"),
    "a review of rights": (
        lambda _, api: api.request("POST", paths.ACCESS_REVIEWS, body={}),
        "POST selfsubjectaccessreviews",
    ),
}


@pytest.mark.parametrize(("act", "request_"), MUTATING.values(), ids=MUTATING)
async def test_a_process_that_does_not_lead_changes_nothing(
    cluster: Cluster, settings: KubernetesSettings, act: Act, request_: str
) -> None:
    async with leading(settings, lambda: 0.0) as parts:
        with pytest.raises(OutcomeUnknownError, match=NOT_LEADING):
            await act(*parts)
    assert cluster.asked == []
    async with leading(settings, lambda: 10.0) as parts:
        await act(*parts)
    assert cluster.asked == [request_]


@pytest.mark.parametrize(("act", "request_"), READING.values(), ids=READING)
async def test_a_process_that_does_not_lead_reads(
    cluster: Cluster, settings: KubernetesSettings, act: Act, request_: str
) -> None:
    async with leading(settings, lambda: 0.0) as parts:
        await act(*parts)
    assert request_ in cluster.asked


async def test_a_repeat_with_fresh_credentials_asks_again_for_leadership(
    cluster: Cluster, settings: KubernetesSettings
) -> None:
    """The lease ends with the refusal of the first credentials."""
    cluster.expired = 1
    async with leading(settings, lambda: 0.0 if cluster.asked else math.inf) as (_, api):
        with pytest.raises(OutcomeUnknownError, match=NOT_LEADING):
            await launch_pods(api, launch_text(settings, make_order()))
    assert cluster.asked == ["POST pods"]


async def test_no_answer_is_awaited_for_longer_than_the_process_leads(
    cluster: Cluster, settings: KubernetesSettings
) -> None:
    """The settings alone would allow an hour, in which the watchdog ends the test."""
    async with leading(replace(settings, timeout=3600.0), lambda: 0.5) as (_, api):
        await api.request("GET", paths.READINESS)
        cluster.hangs = True
        with pytest.raises(OutcomeUnknownError, match="POST"):
            await launch_pods(api, launch_text(settings, make_order()))
