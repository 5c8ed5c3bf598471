"""A job waits for a reason, in the words of the API server or the scheduler, and gets a pod when it ends."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from autoscaler.ledger.failures.failure_counts import BACKOFFS
from autoscaler.model.identifiers import JobId
from autoscaler.model.jobs.job import JobState
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.reasons.table import WaitCode
from autoscaler.model.reasons.waiting import WaitReason
from autoscaler.providers.kubernetes.provider import KubernetesProvider
from tests.cluster.admission import set_quota
from tests.cluster.conftest import GPU, Place, until
from tests.cluster.fleet import Fleet, catalogue_of, pods_option
from tests.providers.doubles import ManualClock, RememberingTelemetry

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(loop_scope="session")
async def fixed(place: Place) -> AsyncIterator[KubernetesProvider]:
    """A provider in a cluster without a provisioner."""
    settings = replace(place.settings, provisioner=False)
    opened = KubernetesProvider(settings, RememberingTelemetry(), ManualClock())
    await opened.open()
    yield opened
    await opened.close()


def fleet_of(place: Place, provider: KubernetesProvider) -> Fleet:
    return Fleet(place, catalogue_of(place, (pods_option(place),)), {provider.name: provider})


async def blocked_by(fleet: Fleet, code: WaitCode) -> WaitReason:
    """The reason with this code why the job waits, once there is one."""
    found: list[WaitReason] = []

    async def blocked() -> bool:
        waiting = [run for runs in fleet.parts.reconciler.plan.waiting.values() for run in runs]
        found[:] = [one for run in waiting for one in run.reasons if one.code is code]
        return bool(found)

    await until(blocked)
    return found[0]


async def is_served_at(fleet: Fleet, reason: WaitReason) -> None:
    """The job gets a pod when its reason was announced to end, and no earlier."""
    assert reason.until is not None
    assert fleet.state.launch_requests
    left = reason.until - fleet.clock.now()
    assert 0 < left <= BACKOFFS[FailureClass(reason.code.value)].delay(0)
    fleet.clock.jump(left)
    [machine] = await fleet.launched(1)
    await fleet.works(machine, 1)
    await fleet.ends(1, "success")
    await fleet.exits(machine)

    async def over() -> bool:
        return not any(one.occupies for one in fleet.state.machines.values())

    await until(over)


@pytest.mark.case(
    "a ResourceQuota of the namespace is used up: the job's reason has the API server's words",
    topic="Kubernetes",
    source="Kubernetes: Resource Quotas",
)
@pytest.mark.parametrize("resource", [f"requests.{GPU}", "pods"])
async def test_a_job_waits_for_a_quota(
    place: Place, provider: KubernetesProvider, resource: str
) -> None:
    await place.add_node()
    await set_quota(place, {resource: "0"})
    fleet = fleet_of(place, provider)
    async with fleet.running():
        await fleet.report(1, JobState.QUEUED)
        reason = await blocked_by(fleet, WaitCode.QUOTA)
        assert f"exceeded quota: quota, requested: {resource}=1" in reason.message
        await set_quota(place, {resource: "4"})
        assert await place.pods() == {}
        await is_served_at(fleet, reason)


async def test_a_job_waits_for_a_node(place: Place, fixed: KubernetesProvider) -> None:
    """Another pod takes the GPU between the count of free ones and the scheduler's decision."""
    node = await place.add_node(gpus=1)
    fleet = fleet_of(place, fixed)

    async def counted() -> bool:
        return sum(fleet.state.quotas.values()) == 1

    async with fleet.running():
        await until(counted)
        taken = await take_gpu(place, node)
        await fleet.report(1, JobState.QUEUED)
        reason = await blocked_by(fleet, WaitCode.CAPACITY)
        assert f"Insufficient {GPU}" in reason.message
        assert await place.pods() == {}
        await place.admin.request("DELETE", taken)
        await place.admin.gone(taken)
        await is_served_at(fleet, reason)


async def test_a_job_whose_pod_waits_for_a_provisioner_has_the_words_of_the_scheduler(
    place: Place, provider: KubernetesProvider
) -> None:
    await take_gpu(place, await place.add_node(gpus=1))
    fleet = fleet_of(place, provider)
    async with fleet.running():
        await fleet.report(1, JobState.QUEUED)

        async def explained() -> bool:
            found = fleet.parts.queries.explain(JobId(1))
            event = found.next_event if found is not None else None
            return event is not None and f"Insufficient {GPU}" in event.what

        await until(explained)


async def take_gpu(place: Place, node: str) -> str:
    """Create a pod of others on a node, and return its path."""
    container: dict[str, Any] = {"name": "c", "image": "x", "resources": {"limits": {GPU: "1"}}}
    spec = {"nodeName": node, "containers": [container]}
    other = {"metadata": {"name": place.name}, "spec": spec}
    await place.admin.create("/api/v1/namespaces/default/pods", other)
    return f"/api/v1/namespaces/default/pods/{place.name}"
