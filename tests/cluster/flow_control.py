"""Has the API server reject requests of a controller with 429: API Priority and Fairness."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

from lab.kubernetes.admin import RequestFailedError
from lab.kubernetes.lab_pods import LabPods
from lab.kubernetes.namespaces import ACCOUNT
from tests.patience import PATIENCE

_FLOW_CONTROL = "/apis/flowcontrol.apiserver.k8s.io/v1"


def _rejected(pods: LabPods) -> list[tuple[str, dict[str, Any]]]:
    """A priority level that executes one request at a time, for all requests of the controller.

    Kubernetes documentation, "API Priority and Fairness": `Reject` queues nothing.
    """
    name = pods.namespace
    account = {"name": ACCOUNT, "namespace": name}
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
    rule = {
        "subjects": [{"kind": "ServiceAccount", "serviceAccount": account}],
        "resourceRules": [everything],
    }
    return [
        (
            "prioritylevelconfigurations",
            {"metadata": {"name": name}, "spec": {"type": "Limited", "limited": level}},
        ),
        (
            "flowschemas",
            {
                "metadata": {"name": name},
                "spec": {
                    "priorityLevelConfiguration": {"name": name},
                    "matchingPrecedence": 1000,
                    "rules": [rule],
                },
            },
        ),
    ]


async def reject_requests(pods: LabPods) -> None:
    """Have the API server reject requests of the controller that arrive together."""
    for collection, body in _rejected(pods):
        await pods.admin.create(f"{_FLOW_CONTROL}/{collection}", body)
    # The API server takes a moment to apply a new limit.
    async with asyncio.timeout(PATIENCE):
        while not any(await asyncio.gather(*(is_rejected(pods) for _ in range(20)))):
            pass


async def is_rejected(pods: LabPods) -> bool:
    """Send a request as the controller's account. Return whether it is rejected."""
    name = pods.namespace
    try:
        await pods.admin.request(
            "GET", f"/api/v1/namespaces/{name}/pods", user=f"system:serviceaccount:{name}:{ACCOUNT}"
        )
    except RequestFailedError as error:
        return error.status == HTTPStatus.TOO_MANY_REQUESTS
    return False


@asynccontextmanager
async def crowded(pods: LabPods) -> AsyncIterator[None]:
    """Send other requests as the controller's account, so that one is often being answered."""

    async def send() -> None:
        while True:
            await is_rejected(pods)
            await asyncio.sleep(0.01)

    tasks = [asyncio.create_task(send()) for _ in range(3)]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def accept_requests(pods: LabPods) -> None:
    """Have the API server accept the controller's requests again."""
    for collection, body in reversed(_rejected(pods)):
        name = body["metadata"]["name"]
        await pods.admin.request("DELETE", f"{_FLOW_CONTROL}/{collection}/{name}")
