"""What others do to a pod under its job, and nodes that do not admit a pod."""

import pytest

from autoscaler.model.jobs.job import JobState
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.machines.machine import ExitReason, Machine, MachineState, TerminationReason
from autoscaler.providers.kubernetes.provider import KubernetesProvider
from tests.cluster.conftest import SKU, Place, listening, until
from tests.cluster.fleet import Fleet, catalogue_of, nonce_of, pods_option

pytestmark = pytest.mark.asyncio(loop_scope="session")

KUBELET = "tests.example/kubelet"
"""A finalizer that keeps a deleted pod until this test, as its kubelet, has ended it."""

STOPPED = [
    {
        "name": "runner",
        "image": "runner",
        "imageID": "",
        "ready": False,
        "restartCount": 0,
        "state": {"terminated": {"exitCode": 143, "reason": "Error"}},
    }
]

PRESSURE = {
    "phase": "Failed",
    "reason": "Evicted",
    "message": "Pod was rejected: The node had condition: [DiskPressure]. ",
}


def name_of(machine: Machine) -> str:
    return str(machine.placement.provider_id).partition(".")[0]


@pytest.mark.case(
    "a person or a node provisioner deletes a pod without an eviction: its job is rerun",
    topic="Kubernetes",
    source="Kubernetes: Pod Lifecycle",
)
async def test_a_job_whose_pod_another_client_deleted_is_rerun(
    place: Place, provider: KubernetesProvider
) -> None:
    await place.add_node()
    option = pods_option(place)
    fleet = Fleet(place, catalogue_of(place, (option,), {SKU: 1}), {provider.name: provider})
    async with fleet.running():
        await fleet.report(1, JobState.QUEUED)
        [machine] = await fleet.launched(1)
        await fleet.works(machine, 1)
        path = place.path(name_of(machine))
        await place.admin.until(path, lambda pod: pod["status"].get("startTime"))
        await listening(provider)
        await place.admin.patch(path, {"metadata": {"finalizers": [KUBELET]}})
        await place.admin.request("DELETE", path)

        async def noted() -> bool:
            return machine.interruption.kind is not None

        await until(noted)
        nonce = nonce_of(machine)
        await fleet.parts.bootstrap.exited(machine.id, nonce, "stopped", ExitReason.STOPPED)
        await place.set_status(
            path.rpartition("/")[2], {"phase": "Failed", "containerStatuses": STOPPED}
        )
        await place.admin.patch(path, {"metadata": {"finalizers": None}})

        async def over() -> bool:
            return not machine.occupies

        await until(over)
        await fleet.ends(1, "failure")

        async def rerun() -> bool:
            fleet.clock.jump(60.0)
            return bool(fleet.reruns.jobs)

        await until(rerun)
    assert fleet.reruns.jobs == [1]
    assert machine.termination.reason is TerminationReason.INTERRUPTED
    assert "the pod was deleted" in machine.reason


@pytest.mark.case(
    "kubelet does not admit pods because its node is under pressure: no circuit breaker opens",
    topic="Kubernetes",
    source="Kubernetes: Disruptions",
)
async def test_pods_that_a_node_under_pressure_does_not_admit_open_no_circuit_breaker(
    place: Place, provider: KubernetesProvider
) -> None:
    await place.add_node()
    fleet = Fleet(place, catalogue_of(place, (pods_option(place),)), {provider.name: provider})
    async with fleet.running():
        for job in (1, 2, 3):
            await fleet.report(job, JobState.QUEUED)
        machines = await fleet.launched(3)
        await listening(provider)
        for machine in machines:
            name = name_of(machine)
            await place.admin.until(place.path(name), lambda pod: pod["spec"].get("nodeName"))
            await place.set_status(name, PRESSURE)

        async def ended() -> bool:
            return all(one.state is MachineState.TERMINATED for one in machines)

        await until(ended)
    assert {one.reason.partition(":")[0] for one in machines} == {"Evicted"}
    holds = fleet.state.cooldowns.values()
    assert {hold.failure for hold in holds} == {FailureClass.CAPACITY}
    assert [key for key in fleet.state.cooldowns if key.startswith("boots:")] == []
