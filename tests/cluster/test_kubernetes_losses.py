"""Many pods with jobs lose their nodes or are evicted: each job is rerun, and nothing is left over."""

import asyncio
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest

from autoscaler.ledger.deadlines import SILENCE
from autoscaler.ledger.interruptions import ASK_AGAIN
from autoscaler.model.identifiers import MachineId
from autoscaler.model.interruptions import NoticeKind
from autoscaler.model.jobs import JobState
from autoscaler.model.machines import Machine, MachineState, TerminationReason
from autoscaler.providers.kubernetes.provider import KubernetesProvider
from tests.cluster.conftest import Place, until
from tests.cluster.fleet import AT_ONCE, Fleet, catalogue_of, pods_option

pytestmark = pytest.mark.asyncio(loop_scope="session")

GPUS = 4
DELETED, SILENT, WHOLE = 10, 10, 30
"""Nodes that are deleted, nodes that are silent, and others."""

EVICTED = 100
JOBS = (DELETED + SILENT + WHOLE) * GPUS
LOSS: float = 600.0
"""Seconds after which GitHub ends the job of a runner that it has lost."""

FINALIZER = "tests.example/silent-kubelet"
"""Keeps a deleted pod as `Terminating`, as a kubelet does that does not answer."""

PAUSE = 1.0


def name_of(machine: Machine) -> str:
    return str(machine.placement.provider_id).partition(".")[0]


async def at_once(work: Iterable[Coroutine[Any, Any, Any]]) -> None:
    """Await all, a few at a time. The first failure ends them all."""
    places = asyncio.Semaphore(AT_ONCE)

    async def one(coroutine: Coroutine[Any, Any, Any]) -> None:
        async with places:
            await coroutine

    async with asyncio.TaskGroup() as group:
        for coroutine in work:
            group.create_task(one(coroutine))


@dataclass
class Crowd:
    """The machines by what happens to their pods, and the job of each."""

    fleet: Fleet
    place: Place
    nodes: list[str]
    job_of: dict[MachineId, int] = field(default_factory=dict)
    evicted: list[Machine] = field(default_factory=list)
    lost: list[Machine] = field(default_factory=list)
    stuck: list[Machine] = field(default_factory=list)
    finishing: list[Machine] = field(default_factory=list)

    @property
    def deleted(self) -> list[str]:
        """The nodes that are deleted."""
        return self.nodes[:DELETED]

    @property
    def silent(self) -> list[str]:
        """The nodes whose kubelets do not answer."""
        return self.nodes[DELETED : DELETED + SILENT]

    @property
    def interrupted(self) -> list[Machine]:
        return [*self.evicted, *self.lost, *self.stuck]

    async def work(self) -> None:
        """Every pod gets a job."""
        for job in range(JOBS):
            await self.fleet.report(job, JobState.QUEUED)
        machines = await self.fleet.launched(JOBS)
        await at_once(self.fleet.works(one, job) for job, one in enumerate(machines))
        self.job_of = {one.id: job for job, one in enumerate(machines)}

        async def scheduled() -> bool:
            pods = (await self.place.pods()).values()
            return all(pod["status"].get("startTime") for pod in pods)

        await until(scheduled, PAUSE)
        on = {name: pod["spec"]["nodeName"] for name, pod in (await self.place.pods()).items()}
        self.lost = [one for one in machines if on[name_of(one)] in self.deleted]
        self.stuck = [one for one in machines if on[name_of(one)] in self.silent]
        others = [one for one in machines if one not in [*self.lost, *self.stuck]]
        self.evicted, self.finishing = others[:EVICTED], others[EVICTED:]

    async def lose(self) -> None:
        """Nodes and pods are lost, and the other jobs succeed."""
        await strand(self.place, self.stuck, self.silent)
        await at_once(evict(self.place, one) for one in self.evicted)
        await at_once(
            self.place.admin.request("DELETE", f"/api/v1/nodes/{node}") for node in self.deleted
        )
        for one in self.finishing:
            await self.fleet.ends(self.job_of[one.id], "success")
            await self.fleet.exits(one)

        async def noticed() -> bool:
            ended = [*self.evicted, *self.lost, *self.finishing]
            gone = all(one.state is MachineState.TERMINATED for one in ended)
            kinds = {one.interruption.kind for one in self.stuck}
            return gone and kinds == {NoticeKind.SCHEDULED_CHANGE}

        await until(noticed, PAUSE)

    async def fail(self) -> None:
        """GitHub loses the runners, and ends their jobs after a while."""
        self.fleet.clock.jump(LOSS)
        for one in self.interrupted:
            await self.fleet.ends(self.job_of[one.id], "failure")
        self.fleet.clock.jump(SILENCE - LOSS)

    async def remove(self) -> None:
        """The silent nodes are deleted, and everything disappears."""
        await release(self.place, self.stuck, self.silent)
        state = self.fleet.state

        async def nothing_left() -> bool:
            return not any(one.occupies for one in state.machines.values())

        await until(nothing_left, PAUSE)


@pytest.mark.case(
    "a node dies under a job: its pod stays Terminating until the node is deleted, and the job is rerun",
    topic="Kubernetes",
    source="Kubernetes: Nodes, and Pod garbage collection",
)
async def test_every_job_of_an_evicted_pod_or_a_lost_node_is_rerun_and_nothing_is_left(
    place: Place, provider: KubernetesProvider
) -> None:
    nodes = [await place.add_node(GPUS) for _ in range(DELETED + SILENT + WHOLE)]
    catalogue = catalogue_of(place, (pods_option(place),), reruns=1)
    fleet = Fleet(place, catalogue, {provider.name: provider})
    crowd = Crowd(fleet, place, nodes)
    async with fleet.running():
        await crowd.work()
        assert (len(crowd.lost), len(crowd.stuck), len(crowd.finishing)) == (40, 40, 20)
        await crowd.lose()
        assert {one.state for one in crowd.stuck} == {MachineState.ASSIGNED}
        # An eviction is no lack of capacity, so the jobs can have new pods at once.
        now = fleet.clock.now()
        assert [key for key, hold in fleet.state.cooldowns.items() if hold.until > now] == []
        await crowd.fail()
        interrupted = sorted(crowd.job_of[one.id] for one in crowd.interrupted)

        async def rerun() -> bool:
            fleet.clock.jump(ASK_AGAIN.first)
            return len(fleet.reruns.jobs) >= len(interrupted)

        await until(rerun, PAUSE)
        assert sorted(fleet.reruns.jobs) == interrupted

        async def given_up() -> bool:
            fleet.clock.jump(SILENCE)
            return {one.state for one in crowd.stuck} == {MachineState.TERMINATING}

        await until(given_up, PAUSE)
        reasons = {one.termination.reason for one in crowd.stuck}
        assert reasons <= {TerminationReason.SILENT_AND_FINISHED, TerminationReason.FINISHED}
        await crowd.remove()
        assert fleet.github.registrations == {}
    assert {
        one async for page in provider.machines() for one in page if not one.terminated
    } == set()
    await provider.delete_unused([])
    assert await place.pods() == {}
    for node in nodes[DELETED + SILENT :]:
        await place.admin.request("DELETE", f"/api/v1/nodes/{node}")


async def evict(place: Place, machine: Machine) -> None:
    name = name_of(machine)
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    await place.admin.create(f"{place.path(name)}/eviction", body)


async def strand(place: Place, stuck: list[Machine], silent: list[str]) -> None:
    """Silence the kubelets of some nodes, so that Kubernetes evicts their pods."""
    finalizers = {"metadata": {"finalizers": [FINALIZER]}}
    await at_once(place.admin.patch(place.path(name_of(one)), finalizers) for one in stuck)
    for node in silent:
        path = f"/api/v1/nodes/{node}"
        taints = (await place.admin.request("GET", path))["spec"]["taints"]
        taints.append({"key": "silent", "effect": "NoExecute"})
        await place.admin.patch(path, {"spec": {"taints": taints}})


async def release(place: Place, stuck: list[Machine], silent: list[str]) -> None:
    """Delete the silent nodes, and so their pods."""
    finalizers = {"metadata": {"finalizers": None}}
    await at_once(place.admin.patch(place.path(name_of(one)), finalizers) for one in stuck)
    for node in silent:
        await place.admin.request("DELETE", f"/api/v1/nodes/{node}")
