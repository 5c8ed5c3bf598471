"""Pods without a provisioner that the scheduler calls Unschedulable for a moment, and places then."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from autoscaler.providers.kubernetes.provider import KubernetesProvider
from autoscaler.providers.kubernetes.settings import PodOption
from tests.cluster.admission import add_priority_class
from tests.cluster.conftest import SKU, Place, listening, names_of, until
from tests.providers.doubles import ManualClock, RememberingTelemetry
from tests.providers.kubernetes_pods import hooks, with_changes

pytestmark = pytest.mark.asyncio(loop_scope="session")


@asynccontextmanager
async def fixed(place: Place, **changes: Any) -> AsyncIterator[KubernetesProvider]:
    """A provider without a provisioner, whose watch has begun."""
    option: PodOption = with_changes(place.settings.options[(SKU, 0)], **changes)
    settings = replace(place.settings, options={(SKU, 0): option}, provisioner=False)
    provider = KubernetesProvider(settings, RememberingTelemetry(), ManualClock())
    try:
        await listening(provider)
        yield provider
    finally:
        await provider.close()


async def said_until_placed(place: Place, provider: KubernetesProvider, name: str) -> list[str]:
    """Why the provider calls a pod one that cannot start, until the pod has a node."""
    said: list[str] = []

    async def placed() -> bool:
        for message in await provider.notices.receive(0.1):
            if message.notice is not None:
                shown = await provider.notices.shown(message.notice.machines)
                said.extend(one.reason for one in shown if one.cannot_start)
            await provider.notices.settle([message.receipt])
        return bool((await place.pod(name))["spec"].get("nodeName"))

    await until(placed)
    return said


async def test_a_pod_whose_claim_is_being_created_is_not_refused(place: Place) -> None:
    node = await place.add_node()
    await place.admin.create(
        "/apis/storage.k8s.io/v1/storageclasses",
        {
            "metadata": {"name": place.name},
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        },
    )
    await place.admin.create(
        "/api/v1/persistentvolumes",
        {
            "metadata": {"name": place.name},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": place.name,
                "local": {"path": "/mnt"},
                "nodeAffinity": {
                    "required": {
                        "nodeSelectorTerms": [
                            {
                                "matchExpressions": [
                                    {"key": "pool", "operator": "In", "values": [place.name]}
                                ]
                            }
                        ]
                    }
                },
            },
        },
    )
    await place.admin.create(
        f"/api/v1/namespaces/{place.name}/serviceaccounts", {"metadata": {"name": "hooks"}}
    )
    mode = hooks("hooks", "1Gi", place.name)
    tolerations = ({"key": "nvidia.com/gpu", "operator": "Exists"},)
    async with fixed(
        place, container_mode=mode, accelerator=None, tolerations=tolerations
    ) as provider:
        request = await provider.prepare(place.make_order(1, "claim"))
        await provider.launch(request)
        [name] = names_of(request)
        said = await said_until_placed(place, provider, name)
        assert (await place.pod(name))["spec"]["nodeName"] == node
        assert said == []


async def test_a_pod_that_waits_for_the_end_of_those_it_preempts_is_not_refused(
    place: Place,
) -> None:
    await place.add_node(gpus=1)
    await add_priority_class(place, place.name, 1_000_000)
    async with fixed(place) as provider:
        less = await provider.prepare(place.make_order(1, "less"))
        await provider.launch(less)
        await said_until_placed(place, provider, names_of(less)[0])
    async with fixed(place, overlay={"spec": {"priorityClassName": place.name}}) as provider:
        request = await provider.prepare(place.make_order(1, "more"))
        await provider.launch(request)
        [name] = names_of(request)
        said = await said_until_placed(place, provider, name)
        assert said == []
