"""One of three nodes is faulty: jobs start on the others, and few pods are put on the faulty one."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from autoscaler.model.catalogue import IdlePolicy
from autoscaler.model.identifiers import Seconds, SkuName
from autoscaler.simulator.world.cluster.nodes import Node, NodeFault, is_required, may_host, score
from autoscaler.simulator.world.cluster.pods import SimulatedCluster
from autoscaler.simulator.world.cluster.registry import Object
from autoscaler.simulator.world.schedule import JobArrival, Schedule
from autoscaler.simulator.world.virtual_time import run
from autoscaler.simulator.world.world import SimulatedWorld
from tests.chaos.cluster_fleets import ALONE, GPUS, setting
from tests.chaos.trial import PATIENCE, final_violations

pytestmark = pytest.mark.systems

GPU = SkuName("gpu")
FAULTY = "gpu-1"
"""The simulated scheduler fills the first node first."""

STARTED_WITHIN: Seconds = 300.0


class Cluster:
    """A world whose SKU `gpu` has one launch option: three nodes of four GPUs, without a provisioner."""

    def __init__(self, *jobs: JobArrival) -> None:
        found = setting({**ALONE, GPU: (GPUS,)})
        skus = dict(found.catalogue.skus)
        skus[GPU] = replace(skus[GPU], idle=IdlePolicy())
        plain = replace(found, catalogue=replace(found.catalogue, skus=skus), strangers=0)
        self.world = SimulatedWorld(plain, Schedule(0, jobs, ()))
        self.nodes = self.world.clusters[GPUS].nodes
        self.on_faulty: set[str] = set()
        """The pods that were put on the faulty node until all jobs had started."""
        self.world.clusters[GPUS].registry.listeners.append(self._changed)

    @property
    def cluster(self) -> SimulatedCluster:
        return self.world.clusters[GPUS]

    @property
    def waits(self) -> list[Seconds | None]:
        """How long each job waited for its start; None for one that waits."""
        jobs = self.world.actions.jobs.values()
        return [None if one.started_at is None else one.started_at - one.queued_at for one in jobs]

    async def play(self) -> None:
        """Play the world to its end. Fails if there is a violation."""
        await self.world.run(PATIENCE)
        assert (*self.world.invariants.violations, *final_violations(self.world)) == ()

    def _changed(self, pod: Object | None, last: Object) -> None:
        waiting = not self.waits or None in self.waits
        if pod is not None and waiting and last["spec"].get("nodeName") == FAULTY:
            self.on_faulty.add(last["metadata"]["uid"])


def jobs(count: int, at: Seconds = 10.0, first: int = 1) -> list[JobArrival]:
    return [JobArrival(at, first + n, ("gpu",), 600.0) for n in range(count)]


@pytest.mark.case(
    "one of three nodes refuses pods, cannot create or start a container, or fails the checks: eight jobs "
    "start within five minutes, and no pod follows the first four on that node",
    topic="Kubernetes",
    source="NVIDIA/k8s-device-plugin#1223; NVIDIA/k8s-device-plugin#1431",
)
@pytest.mark.parametrize("fault", NodeFault)
def test_jobs_start_on_the_other_nodes(fault: NodeFault) -> None:
    async def scenario() -> None:
        it = Cluster(*jobs(8))
        it.nodes[FAULTY].fault = fault
        await it.play()
        assert all(wait is not None and wait <= STARTED_WITHIN for wait in it.waits), it.waits
        assert len(it.on_faulty) <= 4

    run(scenario())


@pytest.mark.case(
    "an administrator deletes the faulty node: the next job starts as soon as without a fault",
    topic="Kubernetes",
    source="NVIDIA/k8s-device-plugin#231",
)
@pytest.mark.parametrize("fault", NodeFault)
def test_after_the_faulty_node_was_deleted_a_job_starts_as_without_a_fault(
    fault: NodeFault,
) -> None:
    def last_wait(broken: bool) -> Seconds:
        async def scenario() -> Seconds:
            it = Cluster(*jobs(8), *jobs(1, at=1500.0, first=9))
            if broken:
                it.nodes[FAULTY].fault = fault
            began = asyncio.get_running_loop().time()
            remove: Callable[[str], None] = it.cluster.remove_node
            asyncio.get_running_loop().call_at(began + 1400.0, remove, FAULTY)
            await it.play()
            wait = it.waits[-1]
            assert wait is not None
            return wait

        return run(scenario())

    assert last_wait(broken=True) <= last_wait(broken=False) + 30.0


@pytest.mark.parametrize("fault", NodeFault)
def test_jobs_without_room_elsewhere_wait_and_burn_no_pods(fault: NodeFault) -> None:
    """Twelve jobs: the third four go to the faulty node once, and then wait for room on the others."""

    async def scenario() -> None:
        it = Cluster(*jobs(12))
        it.nodes[FAULTY].fault = fault
        await it.play()
        assert sum(wait is not None and wait <= STARTED_WITHIN for wait in it.waits) == 8
        assert len(it.on_faulty) <= 8

    run(scenario())


def test_a_fault_that_every_node_has_holds_the_launch_option() -> None:
    """The image has another driver: without a hold, pods would be launched without end."""

    async def scenario() -> None:
        it = Cluster(*jobs(8))
        for node in it.nodes.values():
            node.fault = NodeFault.START_FAILS

        def repair() -> None:
            for node in it.nodes.values():
                node.fault = None

        asyncio.get_running_loop().call_later(1800.0, repair)
        await it.world.run(PATIENCE)
        assert None not in it.waits
        assert len(it.cluster.instances) < 100

    run(scenario())


def test_the_simulated_scheduler_honours_node_affinity() -> None:
    labels = {"kubernetes.io/hostname": "a", "rack": "1"}
    node = Node("a", labels, {})
    elsewhere = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["a"]}
    here = {"key": "rack", "operator": "In", "values": ["1"]}

    def pod(kind: str, terms: object) -> Object:
        return {"spec": {"affinity": {"nodeAffinity": {kind: terms}}}}

    required = "requiredDuringSchedulingIgnoredDuringExecution"
    for terms, expected in (
        ([{"matchExpressions": [elsewhere]}], False),
        ([{"matchExpressions": [elsewhere]}, {"matchExpressions": [here]}], True),
        ([{"matchExpressions": [elsewhere, here]}], False),
    ):
        found = pod(required, {"nodeSelectorTerms": terms})
        assert is_required(node, found) is may_host(node, found) is expected
    preferred = [
        {"weight": 100, "preference": {"matchExpressions": [elsewhere]}},
        {"weight": 7, "preference": {"matchExpressions": [here]}},
    ]
    assert score(node, pod("preferredDuringSchedulingIgnoredDuringExecution", preferred)) == 7
