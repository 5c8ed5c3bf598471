"""1,500 jobs get a pod each, at once. Then 100 pods are evicted, and 20 nodes are lost."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import pytest_asyncio

from autoscaler.controller.ports.provider import OutcomeUnknownError
from autoscaler.ledger.ledger import KEPT_FOR
from autoscaler.model.identifiers import MachineId, SkuName
from autoscaler.model.jobs.job import JobState
from autoscaler.model.machines.due import SILENCE
from autoscaler.model.machines.interruptions import NoticeKind, Rerun, RerunOutcome
from autoscaler.model.machines.machine import DAY, Machine, MachineState, TerminationReason
from autoscaler.providers.kubernetes.provider import KubernetesProvider
from tests.cluster.conftest import SKU, Place, until
from tests.cluster.fleet import AT_ONCE, Fleet, Origin, catalogue_of, pods_option
from tests.providers.contract import listed
from tests.providers.doubles import ManualClock, RememberingTelemetry
from tests.providers.kubernetes_pods import with_changes

pytestmark = pytest.mark.asyncio(loop_scope="session")

ONCE = SkuName("linux.gpu.once")
"""A SKU whose interrupted jobs are not rerun. Those of `SKU` are, once."""

SKUS = {SKU: 1, ONCE: 0}
"""Their `rerun_interrupted`."""

JOBS = 1500
SMALL, LARGE = 5, 100
"""GPUs of a node that is lost, and of another one."""

DELETED, SILENT, WHOLE = 10, 10, 14
"""Nodes that are deleted, nodes that are silent, and others. All pods together use all their GPUs."""

EVICTED = 100
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
    provider: KubernetesProvider
    small: list[str] = field(default_factory=list)
    job_of: dict[MachineId, int] = field(default_factory=dict)
    evicted: list[Machine] = field(default_factory=list)
    lost: list[Machine] = field(default_factory=list)
    stuck: list[Machine] = field(default_factory=list)
    finishing: list[Machine] = field(default_factory=list)
    finished: set[str] = field(default_factory=set)
    """The names of the pods whose job succeeded."""

    @property
    def interrupted(self) -> list[Machine]:
        return [*self.evicted, *self.lost, *self.stuck]

    async def add_nodes(self) -> None:
        """Add the nodes, which have room for all pods and no more."""
        sizes = [SMALL] * (DELETED + SILENT) + [LARGE] * WHOLE
        assert sum(sizes) == JOBS
        names = [f"{self.place.name}-{number}" for number in range(len(sizes))]
        await at_once(self.place.add_node(*one) for one in zip(sizes, names, strict=True))
        self.small = names[: DELETED + SILENT]

    async def launch(self) -> list[Machine]:
        """Queue all jobs, and wait until each has a pod on a node."""
        for job in range(JOBS):
            origin = Origin(SKU if job % 2 else ONCE, job)
            await self.fleet.report(job, JobState.QUEUED, origin=origin)
        machines = await self.fleet.launched(JOBS)

        async def scheduled() -> bool:
            pods = (await self.place.pods()).values()
            return all(pod["spec"].get("nodeName") for pod in pods)

        async def all_listed() -> bool:
            try:
                return set(await listed(self.provider)) == {
                    one.placement.provider_id for one in machines
                }
            except OutcomeUnknownError:
                # The watch cache of a busy API server is behind its own continue token (504, "Too large
                # resource version"). The controller lists again, too.
                return False

        await until(scheduled, PAUSE)
        await until(all_listed, PAUSE)
        return machines

    async def give(self, machines: list[Machine], jobs: Iterable[int]) -> None:
        """Every pod gets a job of its SKU, the oldest first."""
        queues: dict[SkuName, list[int]] = {sku: [] for sku in SKUS}
        for job in jobs:
            queues[self.fleet.origins[job].sku].append(job)

        async def one(machine: Machine) -> None:
            runner = await self.fleet.listens(machine)
            self.job_of[machine.id] = job = queues[machine.sku].pop(0)
            await self.fleet.starts(job, runner)

        async def started() -> bool:
            pods = (await self.place.pods()).values()
            return all(pod["status"].get("startTime") for pod in pods)

        await at_once(map(one, machines))
        # kwok reports the start later, and would undo a status that the test writes before.
        await until(started, PAUSE)

    async def work(self, machines: list[Machine]) -> None:
        """Every pod gets a job of its SKU."""
        await self.give(machines, range(JOBS))
        on = {name: pod["spec"]["nodeName"] for name, pod in (await self.place.pods()).items()}
        deleted, silent = self.small[:DELETED], self.small[DELETED:]
        self.lost = [one for one in machines if on[name_of(one)] in deleted]
        self.stuck = [one for one in machines if on[name_of(one)] in silent]
        others = [one for one in machines if on[name_of(one)] not in self.small]
        self.evicted, self.finishing = others[:EVICTED], others[EVICTED:]

    async def lose(self) -> None:
        """Nodes and pods are lost, and the other jobs succeed."""
        deleted, silent = self.small[:DELETED], self.small[DELETED:]
        await strand(self.place, self.stuck, silent)
        await at_once(evict(self.place, one) for one in self.evicted)
        await at_once(
            self.place.admin.request("DELETE", f"/api/v1/nodes/{node}") for node in deleted
        )
        await at_once(self.finish(one, self.job_of[one.id]) for one in self.finishing)

        async def noticed() -> bool:
            ended = [*self.evicted, *self.lost, *self.finishing]
            gone = all(one.state is MachineState.TERMINATED for one in ended)
            kinds = {one.interruption.kind for one in self.stuck}
            return gone and kinds == {NoticeKind.SCHEDULED_CHANGE}

        await until(noticed, PAUSE)

    async def finish(self, machine: Machine, job: int) -> None:
        """A job succeeds, and its pod ends."""
        await self.fleet.ends(job, "success")
        await self.fleet.exits(machine)
        self.finished.add(name_of(machine))

    async def fail(self) -> None:
        """GitHub loses the runners, and ends their jobs after a while."""
        self.fleet.clock.jump(LOSS)
        for one in self.interrupted:
            await self.fleet.ends(self.job_of[one.id], "failure")
        self.fleet.clock.jump(SILENCE - LOSS)

    async def give_up(self) -> None:
        """The controller asks GitHub for the reruns, and gives up the silent machines."""
        expected = sum(one.sku == SKU for one in self.interrupted)

        async def done() -> bool:
            self.fleet.clock.jump(SILENCE)
            given_up = {one.state for one in self.stuck} == {MachineState.TERMINATING}
            return given_up and len(self.fleet.reruns.jobs) >= expected

        await until(done, PAUSE)

    async def run_again(self) -> None:
        """GitHub queues the second attempts, and they succeed."""
        again = {JOBS + job: Origin(SKU, job, 2) for job in self.fleet.reruns.jobs}
        for job, origin in again.items():
            await self.fleet.report(job, JobState.QUEUED, origin=origin)
        machines = await self.fleet.launched(len(again))
        await self.give(machines, again)
        await at_once(self.finish(one, self.job_of[one.id]) for one in machines)

    async def remove(self) -> None:
        """Everything disappears, also the records of the machines."""

        async def nothing_left() -> bool:
            await self.end_again()
            state = self.fleet.state
            if not any(one.occupies for one in state.machines.values()):
                # Records of interrupted machines stay in memory for a day.
                self.fleet.clock.jump(DAY + KEPT_FOR)
            return not (state.machines or state.runners or state.launch_requests)

        await until(nothing_left, PAUSE)

    async def end_again(self) -> None:
        """Write the end of pods whose job succeeded again, if they run.

        On a busy host, kwok may write the start of a pod late, over its end. No kubelet does.
        """
        pods = await self.place.pods()
        present = self.finished & pods.keys()
        undone = [name for name in present if pods[name]["status"]["phase"] != "Succeeded"]
        await at_once(self.place.set_status(name, {"phase": "Succeeded"}) for name in undone)

    async def all_ended(self) -> bool:
        """Return True if the provider lists no pod that runs."""
        await self.end_again()
        return all(one.terminated for one in (await listed(self.provider)).values())


@pytest_asyncio.fixture(loop_scope="session")
async def provider(place: Place) -> AsyncIterator[KubernetesProvider]:
    """A provider with both SKUs."""
    option = place.settings.options[(SKU, 0)]
    options = {(sku, 0): with_changes(option, sku=sku) for sku in SKUS}
    settings = replace(place.settings, options=options)
    opened = KubernetesProvider(settings, RememberingTelemetry(), ManualClock())
    await opened.open()
    yield opened
    await opened.close()


@pytest.mark.case(
    "a node dies under a job: its pod stays Terminating until the node is deleted, and the job is rerun",
    topic="Kubernetes",
    source="Kubernetes: Nodes, and Pod garbage collection",
)
async def test_every_job_of_an_evicted_pod_or_a_lost_node_is_reported_or_run_again(
    place: Place, provider: KubernetesProvider
) -> None:
    catalogue = catalogue_of(place, (pods_option(place),), SKUS)
    fleet = Fleet(place, catalogue, {provider.name: provider})
    crowd = Crowd(fleet, place, provider)
    await crowd.add_nodes()
    async with fleet.running():
        await crowd.work(await crowd.launch())
        assert (len(crowd.lost), len(crowd.stuck), len(crowd.finishing)) == (50, 50, 1300)
        await crowd.lose()
        assert {one.state for one in crowd.stuck} == {MachineState.ASSIGNED}
        # An eviction is no lack of capacity, so the jobs can have new pods at once.
        now = fleet.clock.now()
        assert [key for key, hold in fleet.state.cooldowns.items() if hold.until > now] == []
        await crowd.fail()
        await crowd.give_up()
        reasons = {one.termination.reason for one in crowd.stuck}
        assert reasons <= {TerminationReason.SILENT_AND_FINISHED, TerminationReason.FINISHED}
        await release(place, crowd.stuck, crowd.small[DELETED:])
        await crowd.run_again()
        await crowd.remove()
    found = {one.job: one.outcome for one in fleet.store.of_kind(Rerun)}
    wanted = {SKU: RerunOutcome.ACCEPTED, ONCE: RerunOutcome.OFF}
    assert found == {crowd.job_of[one.id]: wanted[one.sku] for one in crowd.interrupted}
    assert set(found.values()) == set(wanted.values())
    assert sorted(fleet.reruns.jobs) == sorted(
        job for job, outcome in found.items() if outcome is RerunOutcome.ACCEPTED
    )
    assert fleet.github.registrations == {}
    await until(crowd.all_ended, PAUSE)
    # The controller deletes pods that have ended every ten minutes.
    await provider.delete_unused([])
    assert await place.pods() == {}
    for number in range(DELETED + SILENT, DELETED + SILENT + WHOLE):
        await place.admin.request("DELETE", f"/api/v1/nodes/{place.name}-{number}")


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
