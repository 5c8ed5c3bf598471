"""The controller counts the free accelerators of a real cluster, and launches no pod that has no room."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio

from autoscaler.model.jobs.job import JobState
from autoscaler.model.machines.machine import MachineState
from autoscaler.providers.kubernetes.provider import KubernetesProvider
from tests.cluster.conftest import GPU, Place, until
from tests.cluster.fleet import Fleet, catalogue_of, pods_option
from tests.providers.doubles import ManualClock, RememberingTelemetry

pytestmark = pytest.mark.asyncio(loop_scope="session")

OTHERS = 3
"""GPUs that a pod of others uses."""

FREE = 2
JOBS = 5


@pytest_asyncio.fixture(loop_scope="session")
async def fixed(place: Place) -> AsyncIterator[KubernetesProvider]:
    """A provider in a cluster without a provisioner, where a pod of others uses some GPUs."""
    node = await place.add_node(gpus=OTHERS + FREE)
    container = {"name": "c", "image": "x", "resources": {"limits": {GPU: str(OTHERS)}}}
    other = {
        "metadata": {"name": place.name},
        "spec": {"nodeName": node, "containers": [container]},
    }
    await place.admin.create("/api/v1/namespaces/default/pods", other)
    settings = replace(place.settings, provisioner=False)
    opened = KubernetesProvider(settings, RememberingTelemetry(), ManualClock())
    await opened.open()
    yield opened
    await opened.close()
    await place.admin.request("DELETE", f"/api/v1/namespaces/default/pods/{place.name}")


async def test_jobs_wait_for_the_accelerators_that_are_free_and_every_pod_gets_a_node(
    place: Place, fixed: KubernetesProvider
) -> None:
    fleet = Fleet(place, catalogue_of(place, (pods_option(place),)), {fixed.name: fixed})
    async with fleet.running():

        async def counted() -> bool:
            return bool(fleet.state.quotas)

        # Before the first count, only the scheduler refuses pods.
        await until(counted)
        for job in range(JOBS):
            await fleet.report(job, JobState.QUEUED)
        for job in range(JOBS):
            # A pod takes the place of one that has ended, and no job beyond that gets one.
            [machine, *_] = await fleet.launched(min(FREE, JOBS - job))
            await fleet.works(machine, job)
            await fleet.ends(job, "success")
            await fleet.exits(machine)

        async def over() -> bool:
            return not any(one.occupies for one in fleet.state.machines.values())

        await until(over)
    machines = list(fleet.state.machines.values())
    assert len(machines) == JOBS
    assert {(one.state, one.failure) for one in machines} == {(MachineState.TERMINATED, None)}
    pods = (await place.pods()).values()
    assert len(pods) == JOBS
    assert all(pod["spec"].get("nodeName") for pod in pods)
