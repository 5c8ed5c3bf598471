"""How pods end: evicted, preempted, with their node, by a kubelet, and what is read from them."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from autoscaler.controller.ports.capabilities import Notice
from autoscaler.controller.ports.provider import ProviderError
from autoscaler.model.events import ListedMachine
from autoscaler.model.identifiers import ProviderMachineId
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.machines.interruptions import NoticeKind
from autoscaler.providers.kubernetes.identity.ownership import DO_NOT_DISRUPT, FLEET
from autoscaler.providers.kubernetes.listing.pending import SET_UP_TIMEOUT
from autoscaler.providers.kubernetes.provider import KubernetesProvider
from tests.cluster.admission import add_priority_class
from tests.cluster.conftest import SKU, Place, listening, names_of
from tests.patience import PATIENCE
from tests.providers.contract import listed
from tests.providers.doubles import ManualClock, RememberingTelemetry
from tests.providers.kubernetes_pods import with_changes

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def started(place: Place, provider: KubernetesProvider, request: str) -> ProviderMachineId:
    """Launch one pod, and wait until it runs on a node."""
    text = await provider.prepare(place.make_order(1, request))
    [machine] = (await provider.launch(text)).launched
    path = place.path(names_of(text)[0])
    await place.admin.until(path, lambda pod: pod["status"].get("startTime"))
    return machine.provider_id


def name_of(machine: ProviderMachineId) -> str:
    return str(machine).partition(".")[0]


async def notices(
    provider: KubernetesProvider, machine: ProviderMachineId, enough: Callable[[list[Notice]], bool]
) -> list[Notice]:
    """The notices about a machine, once they are enough."""
    found: list[Notice] = []
    async with asyncio.timeout(PATIENCE):
        while not enough(found):
            for message in await provider.notices.receive(1.0):
                assert message.notice is not None
                if machine in message.notice.machines:
                    found.append(message.notice)
                await provider.notices.settle([message.receipt])
    return found


def interrupted(found: list[Notice]) -> bool:
    """Whether the node takes the pod away, or another pod does."""
    kinds = {NoticeKind.SCHEDULED_CHANGE, NoticeKind.SPOT_INTERRUPTION}
    return any(one.kind in kinds for one in found)


async def test_an_eviction_is_announced_and_the_pod_is_gone(
    place: Place, provider: KubernetesProvider
) -> None:
    await place.add_node()
    machine = await started(place, provider, "evicted")
    await listening(provider)
    name = name_of(machine)
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    await place.admin.create(f"{place.path(name)}/eviction", eviction)
    # Both notices may arrive together.
    found = await notices(
        provider, machine, lambda seen: any(one.detail == "does not exist" for one in seen)
    )
    assert interrupted(found[:1])
    assert "EvictionByEvictionAPI" in found[0].detail
    [gone] = await provider.notices.shown([machine])
    assert (gone.terminated, gone.leaving, gone.failure) == (True, False, FailureClass.CAPACITY)
    assert gone.reason.startswith("EvictionByEvictionAPI: ")
    assert machine not in await listed(provider)


async def test_a_pod_that_is_only_missing_proves_nothing(
    place: Place, provider: KubernetesProvider
) -> None:
    text = await provider.prepare(place.make_order(1, "missing"))
    [machine] = (await provider.launch(text)).launched
    await place.admin.request("DELETE", place.path(name_of(machine.provider_id)))
    assert await provider.notices.shown([machine.provider_id]) == ()


async def test_a_pod_that_lost_its_label_is_not_gone(
    place: Place, provider: KubernetesProvider
) -> None:
    """The watch reports it as deleted, because its selector does not match the pod any more."""
    await place.add_node()
    machine = await started(place, provider, "label")
    await listening(provider)
    path = place.path(name_of(machine))
    await place.admin.patch(path, {"metadata": {"labels": {FLEET: None}}})
    await notices(provider, machine, bool)
    [shown] = await provider.notices.shown([machine])
    assert not shown.terminated


async def test_a_preempted_pod_names_the_scheduler(
    place: Place, provider: KubernetesProvider
) -> None:
    await place.add_node(gpus=1)
    machine = await started(place, provider, "preempted")
    await listening(provider)
    await add_priority_class(place, place.name, 1_000_000)
    pod = await place.pod(name_of(machine))
    container = pod["spec"]["containers"][0]
    important = {
        "metadata": {"name": "important"},
        "spec": {
            "priorityClassName": place.name,
            "tolerations": pod["spec"]["tolerations"],
            "nodeSelector": pod["spec"]["nodeSelector"],
            "securityContext": pod["spec"]["securityContext"],
            "containers": [
                {key: container[key] for key in ("name", "image", "resources", "securityContext")}
            ],
        },
    }
    await place.admin.create(f"/api/v1/namespaces/{place.name}/pods", important)
    found = await notices(provider, machine, interrupted)
    assert any("PreemptionByScheduler" in one.detail for one in found)


async def test_a_pod_on_a_tainted_node_names_the_taint_manager(
    place: Place, provider: KubernetesProvider
) -> None:
    node = await place.add_node()
    machine = await started(place, provider, "drained")
    await listening(provider)
    found = await place.admin.request("GET", f"/api/v1/nodes/{node}")
    taints = [*found["spec"]["taints"], {"key": "broken", "effect": "NoExecute"}]
    await place.admin.patch(f"/api/v1/nodes/{node}", {"spec": {"taints": taints}})
    seen = await notices(provider, machine, interrupted)
    assert any("DeletionByTaintManager" in one.detail for one in seen)


async def test_the_end_that_a_kubelet_reports_is_read_with_its_reason(
    place: Place, provider: KubernetesProvider
) -> None:
    await place.add_node()
    machine = await started(place, provider, "memory")
    await listening(provider)
    ended = {"reason": "OOMKilled", "exitCode": 137}
    container = {"name": "runner", "image": "x", "imageID": "", "ready": False, "restartCount": 0}
    status = {
        "phase": "Failed",
        "containerStatuses": [{**container, "state": {"terminated": ended}}],
    }
    await place.set_status(name_of(machine), status)
    [notice] = await notices(provider, machine, bool)
    assert notice.kind is NoticeKind.STATE_CHANGE
    [shown] = await provider.notices.shown([machine])
    assert shown.terminated
    assert (shown.failure, shown.reason) == (
        None,
        "OOMKilled: container runner ended with status 137, at its memory limit of 1Gi",
    )


async def test_a_pod_whose_image_cannot_be_pulled_cannot_start(
    place: Place, provider: KubernetesProvider
) -> None:
    await place.add_node()
    machine = await started(place, provider, "image")
    said = 'ErrImagePull: failed to resolve reference "runner:1": runner:1: not found'
    state = {"waiting": {"reason": "ImagePullBackOff", "message": said}}
    container: dict[str, Any] = {"name": "runner", "image": "x", "imageID": "", "restartCount": 0}
    waiting = [{**container, "ready": False, "state": state}]
    status = {"phase": "Pending", "containerStatuses": waiting}
    await place.set_status(name_of(machine), status)
    found = (await listed(provider))[machine]
    assert (found.cannot_start, found.failure) == (True, FailureClass.CONFIGURATION)


async def test_a_pod_that_its_node_does_not_set_up_cannot_start(place: Place) -> None:
    clock = ManualClock()
    provider = KubernetesProvider(place.settings, RememberingTelemetry(), clock)
    try:
        await place.add_node()
        machine = await started(place, provider, "setup")
        not_set_up = [{"type": "PodReadyToStartContainers", "status": "False"}]
        status = {"phase": "Pending", "conditions": not_set_up}
        await place.set_status(name_of(machine), status)
        assert not (await listed(provider))[machine].cannot_start
        clock.time += SET_UP_TIMEOUT
        found = (await listed(provider))[machine]
        assert (found.cannot_start, found.failure) == (True, FailureClass.UNKNOWN)
    finally:
        await provider.close()


@pytest.mark.case(
    "a sidecar ends again and again: its pod is given up after three restarts, long before the boot deadline",
    topic="Kubernetes",
    source="Kubernetes: Pod Lifecycle",
)
async def test_a_pod_whose_sidecar_ends_again_and_again_cannot_start(place: Place) -> None:
    sidecar = {
        "name": "sidecar",
        "image": "x",
        "restartPolicy": "Always",
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    overlay = {"spec": {"initContainers": [sidecar]}}
    option = with_changes(place.settings.options[(SKU, 0)], overlay=overlay)
    settings = replace(place.settings, options={(SKU, 0): option})
    provider = KubernetesProvider(settings, RememberingTelemetry(), ManualClock())
    await place.add_node()
    machine = await started(place, provider, "sidecar")
    await listening(provider)

    async def restarted(times: int) -> ListedMachine:
        """The listed machine after so many restarts, as kubelet reports them."""
        text = "back-off 40s restarting failed container=sidecar pod=p"
        status = {
            "name": "sidecar",
            "image": "x",
            "imageID": "",
            "ready": False,
            "restartCount": times,
            "lastState": {"terminated": {"exitCode": 1, "reason": "Error"}},
            "state": {"waiting": {"reason": "CrashLoopBackOff", "message": text}},
        }
        await place.set_status(name_of(machine), {"initContainerStatuses": [status]})
        return (await listed(provider))[machine]

    assert not (await restarted(2)).cannot_start
    found = await restarted(3)
    assert (found.cannot_start, found.failure) == (True, FailureClass.CONFIGURATION)
    assert found.reason.startswith("CrashLoopBackOff: container sidecar: back-off 40s")
    assert found.reason.endswith("it ended with status 1")
    # The controller need not wait for its next list.
    assert await notices(provider, machine, bool)
    await provider.close()


async def test_the_console_of_a_pod_that_cannot_start_shows_the_reason(
    place: Place, provider: KubernetesProvider
) -> None:
    [machine] = (await provider.launch(await provider.prepare(place.make_order(1, "log")))).launched
    name = name_of(machine.provider_id)
    await place.admin.until(place.path(name), lambda pod: pod["status"].get("conditions"))
    text = await provider.console(machine.provider_id)
    assert text.startswith("Unschedulable: ")
    await provider.terminate([machine.provider_id])
    with pytest.raises(ProviderError) as error:
        await provider.console(machine.provider_id)
    assert error.value.code == "NotFound"


@pytest.mark.case(
    "Karpenter removes the node of a pod that is only ready, and waits for a pod that may run a job",
    topic="Kubernetes",
    source="Karpenter: disruption",
)
async def test_only_this_pod_is_protected_and_none_that_is_being_deleted(
    place: Place, provider: KubernetesProvider
) -> None:
    await place.add_node()
    machine = await started(place, provider, "protected")
    path = place.path(name_of(machine))
    assert DO_NOT_DISRUPT not in (await place.pod(name_of(machine)))["metadata"]["annotations"]
    await provider.protect(machine)
    annotations = (await place.pod(name_of(machine)))["metadata"]["annotations"]
    assert annotations[DO_NOT_DISRUPT] == "true"
    [shown] = [
        one async for page in provider.machines() for one in page if one.provider_id == machine
    ]
    assert shown.assigned
    with pytest.raises(ProviderError) as error:
        await provider.protect(ProviderMachineId(f"{name_of(machine)}.another-uid"))
    assert error.value.code == "Invalid"
    await place.admin.patch(path, {"metadata": {"finalizers": ["tests.example/stays"]}})
    await place.admin.request("DELETE", path)
    with pytest.raises(ProviderError) as error:
        await provider.protect(machine)
    assert error.value.code == "Leaving"
    await place.admin.patch(path, {"metadata": {"finalizers": None}})
    await place.admin.gone(path)
    with pytest.raises(ProviderError) as error:
        await provider.protect(machine)
    assert error.value.code == "NotFound"
