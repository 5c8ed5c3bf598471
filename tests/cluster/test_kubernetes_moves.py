"""A job moves between pods and EC2 when a launch option cannot be had. It never has two machines."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio

from autoscaler.controller.ports.provider import ProviderError
from autoscaler.ledger.failures.failure_counts import BACKOFFS
from autoscaler.model.catalogue import CapacityType, LaunchOption
from autoscaler.model.jobs.job import JobState
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.machines.machine import MachineState, TerminationReason
from autoscaler.providers.kubernetes.provider import KubernetesProvider
from lab.kubernetes.admin import accepts_pods
from tests.cluster.conftest import GPU, SKU, Place, until
from tests.cluster.fleet import Fleet, catalogue_of, pods_option
from tests.controller.fakes_provider import FakeProvider, Lost
from tests.planner.fleets import EAST, offering
from tests.providers.doubles import ManualClock, RememberingTelemetry
from tests.providers.kubernetes_pods import with_changes

pytestmark = pytest.mark.asyncio(loop_scope="session")

EC2 = LaunchOption(EAST, (CapacityType.ON_DEMAND,), (offering(),))


@pytest.fixture
def east() -> FakeProvider:
    return FakeProvider(latency=0.0)


@pytest_asyncio.fixture(loop_scope="session")
async def pods(place: Place) -> AsyncIterator[KubernetesProvider]:
    """Pods in a cluster without a provisioner. They ask for more CPU than any node has."""
    option = with_changes(
        place.settings.options[(SKU, 0)], resources={"cpu": "200", "memory": "1Gi"}
    )
    settings = replace(place.settings, options={(SKU, 0): option}, provisioner=False)
    opened = KubernetesProvider(settings, RememberingTelemetry(), ManualClock())
    await opened.open()
    yield opened
    await opened.close()


@pytest_asyncio.fixture(loop_scope="session")
async def second(place: Place) -> AsyncIterator[KubernetesProvider]:
    """Pods that are the second launch option."""
    settings = replace(place.settings, options={(SKU, 1): place.settings.options[(SKU, 0)]})
    opened = KubernetesProvider(settings, RememberingTelemetry(), ManualClock())
    await opened.open()
    yield opened
    await opened.close()


def make_fleet(
    place: Place, pods: KubernetesProvider, east: FakeProvider, *options: LaunchOption
) -> Fleet:
    return Fleet(place, catalogue_of(place, options), {pods.name: pods, EAST: east})


@pytest.mark.case(
    "no node takes a pod, or its image cannot be pulled: the pod is deleted at once, and the next launch "
    "option is used when the pod is gone",
    topic="Kubernetes",
    source="Kubernetes: Pod Lifecycle",
)
async def test_jobs_that_no_node_can_serve_move_to_ec2_when_their_pods_are_gone(
    place: Place, pods: KubernetesProvider, east: FakeProvider
) -> None:
    await place.add_node()
    fleet = make_fleet(place, pods, east, pods_option(place), EC2)
    together: list[int] = []

    def count(request: str) -> None:
        """Count the pods that are not gone, and EC2's machines with those of this request."""
        tried = [one for one in fleet.state.machines.values() if one.provider == pods.name]
        left = [one for one in tried if one.state is not MachineState.TERMINATED]
        together.append(len(left) + len(east.running) + int(json.loads(request)["count"]))

    east.on_launch = count
    async with fleet.running():
        for job in (1, 2, 3):
            await fleet.report(job, JobState.QUEUED)

        async def moved() -> bool:
            return len(east.running) == 3

        await until(moved)
        assert await place.pods() == {}
    assert max(together) == 3
    tried = [one for one in fleet.state.machines.values() if one.provider == pods.name]
    assert {one.termination.reason for one in tried} == {TerminationReason.CANNOT_START}
    assert {one.failure for one in tried} == {FailureClass.CAPACITY}
    assert "Insufficient cpu" in tried[0].reason
    assert fleet.github.registered == []


async def test_jobs_that_ec2_cannot_serve_move_to_pods(
    place: Place, second: KubernetesProvider, east: FakeProvider
) -> None:
    await place.add_node()
    short = ProviderError(FailureClass.CAPACITY, "InsufficientInstanceCapacity", "none left")
    east.launch_script.append(short)
    fleet = make_fleet(place, second, east, EC2, pods_option(place))
    async with fleet.running():
        for job in (1, 2):
            await fleet.report(job, JobState.QUEUED)
        machines = await fleet.launched(2)
        for number, machine in enumerate(machines, 1):
            await fleet.works(machine, number)
        assert len(await place.pods()) == 2
        assert east.running == []
        for number, machine in enumerate(machines, 1):
            await fleet.ends(number, "success")
            await fleet.exits(machine)

        async def over() -> bool:
            return not any(one.occupies for one in fleet.state.machines.values())

        await until(over)


async def test_a_job_that_ec2_cannot_serve_moves_back_to_pods_when_a_node_has_room(
    place: Place, pods: KubernetesProvider, east: FakeProvider
) -> None:
    """No node has room, then EC2 has no capacity, and then a new node has room."""
    await place.add_node()
    short = ProviderError(FailureClass.CAPACITY, "InsufficientInstanceCapacity", "none left")
    east.launch_script.append(short)
    fleet = make_fleet(place, pods, east, pods_option(place), EC2)
    async with fleet.running():
        await fleet.report(1, JobState.QUEUED)

        async def neither() -> bool:
            return len(east.sent) == 1 and await place.pods() == {}

        await until(neither)
        [first] = [one for one in fleet.state.machines.values() if one.provider == pods.name]
        assert first.termination.reason is TerminationReason.CANNOT_START
        large = f"{place.name}-large"
        await place.admin.add_node(large, {"cpu": "256", GPU: "8"}, {"pool": place.name})
        await place.admin.until(f"/api/v1/nodes/{large}", accepts_pods)
        await place.admin.scheduler_knows(large)
        # Both launch options are on hold.
        fleet.clock.jump(BACKOFFS[FailureClass.CAPACITY].longest)
        [machine] = await fleet.launched(1)
        assert (machine.provider, east.running) == (pods.name, [])
        await fleet.works(machine, 1)
        assert len(await place.pods()) == 1
        await fleet.ends(1, "success")
        await fleet.exits(machine)

        async def over() -> bool:
            return not any(one.occupies for one in fleet.state.machines.values())

        await until(over)
    assert len(east.sent) == 1


async def test_a_job_does_not_move_while_ec2_may_have_launched_its_machine(
    place: Place, second: KubernetesProvider, east: FakeProvider
) -> None:
    east.launch_script.append(Lost())
    fleet = make_fleet(place, second, east, EC2, pods_option(place))
    async with fleet.running():
        await fleet.report(1, JobState.QUEUED)

        async def bound() -> bool:
            return len(fleet.machines(MachineState.LAUNCHED)) == 1

        await until(bound)
        assert len(east.sent) == 2
        assert await place.pods() == {}
