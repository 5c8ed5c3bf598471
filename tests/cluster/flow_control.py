"""Has the API server reject requests of a controller with 429: API Priority and Fairness."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

import aiohttp

from lab.kubernetes.lab_pods import LabPods
from lab.kubernetes.namespaces import ACCOUNT
from tests.patience import PATIENCE

_FLOW_CONTROL = "/apis/flowcontrol.apiserver.k8s.io/v1"
_PAUSE = 0.02
"""Seconds between two requests."""


def _limits(name: str) -> dict[str, dict[str, Any]]:
    """Return a priority level that executes one request at a time, for all requests of the controller.

    Kubernetes documentation, "API Priority and Fairness": `Reject` queues nothing.
    """
    everything = {
        "verbs": ["*"],
        "apiGroups": ["*"],
        "resources": ["*"],
        "namespaces": ["*"],
        "clusterScope": True,
    }
    level = {
        "nominalConcurrencyShares": 0,
        "lendablePercent": 0,
        "borrowingLimitPercent": 0,
        "limitResponse": {"type": "Reject"},
    }
    account = {
        "kind": "ServiceAccount",
        "serviceAccount": {"name": ACCOUNT, "namespace": name},
    }
    return {
        "prioritylevelconfigurations": {"type": "Limited", "limited": level},
        "flowschemas": {
            "priorityLevelConfiguration": {"name": name},
            "matchingPrecedence": 1000,
            "rules": [{"subjects": [account], "resourceRules": [everything]}],
        },
    }


@asynccontextmanager
async def rejected_requests(pods: LabPods) -> AsyncIterator[None]:
    """Have the API server reject each request of the controller, until the block ends."""
    name, made = pods.namespace, []
    try:
        for collection, spec in _limits(name).items():
            await pods.admin.create(
                f"{_FLOW_CONTROL}/{collection}", {"metadata": {"name": name}, "spec": spec}
            )
            made.append(f"{_FLOW_CONTROL}/{collection}/{name}")
        schema = await pods.admin.request("GET", made[-1])
        async with _as_controller(pods) as session:
            # The API server takes a moment to apply a new limit.
            async with asyncio.timeout(PATIENCE):
                while await _schema_of_requests(session, name) != schema["metadata"]["uid"]:
                    pass
            holding = await _start_holding(session)
            try:
                yield
            finally:
                ended_early = holding.done()
                holding.cancel()
                await asyncio.gather(holding, return_exceptions=not ended_early)
    finally:
        for path in reversed(made):
            await pods.admin.request("DELETE", path)


def _as_controller(pods: LabPods) -> aiohttp.ClientSession:
    """Return a session whose requests count as the controller's."""
    credentials = pods.admin.credentials
    context = ssl.create_default_context(cafile=str(credentials.ca))
    return aiohttp.ClientSession(
        pods.admin.url,
        headers={
            "Authorization": f"Bearer {credentials.tokens['admin']}",
            "Content-Type": "application/json",
            "Impersonate-User": f"system:serviceaccount:{pods.namespace}:{ACCOUNT}",
        },
        connector=aiohttp.TCPConnector(ssl=context),
        timeout=aiohttp.ClientTimeout(total=None),
    )


async def _schema_of_requests(session: aiohttp.ClientSession, namespace: str) -> str | None:
    """Return the UID of the flow schema that applies to the controller's requests.

    Kubernetes documentation, "Flow Control", names the header.
    """
    async with session.get(f"/api/v1/namespaces/{namespace}/pods", params={"limit": "1"}) as answer:
        return answer.headers.get("X-Kubernetes-PF-FlowSchema-UID")


async def _start_holding(session: aiohttp.ClientSession) -> asyncio.Task[None]:
    """Send a request whose body never ends. Meanwhile the priority level executes no other one.

    The API server asks for the body (100 Continue) when it executes the request. Returns the task that sends
    it, once that has happened. The request ends when the task is cancelled, or after the ten minutes that the
    lab's API server gives a request.
    """
    executing = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        executing.set()
        await asyncio.Event().wait()
        yield b""

    async def send() -> None:
        while True:
            async with session.post(
                "/apis/authentication.k8s.io/v1/tokenreviews", data=endless(), expect100=True
            ) as answer:
                # The controller's own request was being executed.
                assert answer.status == HTTPStatus.TOO_MANY_REQUESTS, await answer.text()
            await asyncio.sleep(_PAUSE)

    task = asyncio.create_task(send())
    waiting = asyncio.create_task(executing.wait())
    async with asyncio.timeout(PATIENCE):
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        waiting.cancel()
        await task
    return task
