"""The records of pods follow from complete lists, and no machine that runs is recorded as ended."""

import asyncio
from collections.abc import Iterable

import pytest

from autoscaler.controller.ports.provider import LaunchOrder, ProviderError
from autoscaler.model.catalogue import CapacityType
from autoscaler.model.identifiers import LaunchRequestId, MachineId, Seconds, SkuName
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.machines.machine import Machine, MachineState, Placement
from autoscaler.simulator.world.cluster.pod_lists import STORED_WITHIN
from autoscaler.simulator.world.cluster.pods import NOTICED_AFTER, SimulatedCluster
from autoscaler.simulator.world.controller.clock import HostClock
from autoscaler.simulator.world.controller.store import MemoryStore
from autoscaler.simulator.world.fault_schedule import FaultSchedule
from autoscaler.simulator.world.instances import POWERED_OFF, Instance
from autoscaler.simulator.world.invariants import Invariants
from autoscaler.simulator.world.schedule import Fault, FaultKind, Fleet, Schedule
from autoscaler.simulator.world.virtual_time import EPOCH
from autoscaler.simulator.world.world import SimulatedWorld
from tests.chaos.cluster_fleets import ELASTIC, GPUS, SETTINGS
from tests.controller.virtual_time import on_virtual_time

REQUEST = LaunchRequestId("c-1")
SETTING = SETTINGS[Fleet.KUBERNETES]


class Lists:
    """A cluster, a process's provider, and the records of a controller that learns nothing from its lists."""

    def __init__(self, name: str, *faults: Fault) -> None:
        loop = asyncio.get_running_loop()
        schedule = FaultSchedule(faults, loop.time())
        self.store = MemoryStore()
        self.invariants = Invariants(SETTING.catalogue, self.store)
        self.store.on_commit = self.invariants.recorded
        plan = next(plan for one, plan in SETTING.clusters.items() if one == name)
        self.cluster = SimulatedCluster(
            next(one for one in SETTING.clusters if one == name),
            plan,
            schedule,
            self.invariants,
            lambda: EPOCH + loop.time(),
        )
        self.cluster.on_launch = self.invariants.began
        self.cluster.on_end = self.invariants.ended
        self.provider = SETTING.connect_cluster(self.cluster, HostClock(schedule))

    async def launch(self, sku: str, count: int) -> list[Instance]:
        await self.provider.open()
        order = LaunchOrder(REQUEST, SkuName(sku), 0, CapacityType.ON_DEMAND, (), count, "t-1")
        await self.provider.launch(await self.provider.prepare(order))
        self.invariants.violations.clear()  # no controller has stored this request
        await asyncio.sleep(1.0)
        return list(self.cluster.running.values())

    async def store_as(self, state: MachineState, instances: Iterable[Instance]) -> None:
        """Store a record of each machine."""
        records = [
            Machine(
                MachineId(f"m-{slot}"),
                one.sku,
                self.cluster.name,
                REQUEST,
                slot,
                0.0,
                state,
                0.0,
                Placement(1.0, (), one.id),
            )
            for slot, one in enumerate(instances)
        ]
        await self.store.commit(records, ())

    async def list_for(self, seconds: Seconds) -> list[str]:
        """List every 30 s. Return the violations a moment after the last list."""
        for _ in range(int(seconds // 30)):
            async for _ in self.provider.machines():
                pass
            await asyncio.sleep(30.0)
        return self.invariants.violations


@pytest.mark.parametrize(
    ("state", "violates"),
    [
        (MachineState.EXITED, True),
        (MachineState.TERMINATING, True),
        (MachineState.TERMINATED, False),
    ],
)
@on_virtual_time
async def test_a_pod_that_a_list_showed_as_ended_counts_no_more(
    state: MachineState, violates: bool
) -> None:
    lists = Lists(GPUS)
    (pod,) = await lists.launch("gpu", 1)
    await asyncio.sleep(30.0)
    lists.cluster.shut_down(pod, POWERED_OFF)
    await lists.store_as(state, [pod])
    assert STORED_WITHIN < 30.0
    found = await lists.list_for(30.0)
    assert found == [f"{pod.id} has ended, was listed, and still counts as {state}"] * violates


@pytest.mark.parametrize(
    ("state", "violates"), [(MachineState.LAUNCHED, True), (MachineState.TERMINATING, False)]
)
@on_virtual_time
async def test_a_pod_waits_for_a_node_until_its_timeout(
    state: MachineState, violates: bool
) -> None:
    """One node has room for four pods, and the provisioner adds no other one for three thousand seconds."""
    lists = Lists(ELASTIC, Fault(0.0, FaultKind.NO_NEW_NODES, 3000.0))
    pods = await lists.launch("cpu", 5)
    await lists.store_as(state, pods)
    assert await lists.list_for(870.0) == []
    found = await lists.list_for(90.0)
    assert found == [f"{pods[4].id} waits for a node for too long"] * violates


@on_virtual_time
async def test_without_a_provisioner_the_second_list_of_a_waiting_pod_ends_its_wait() -> None:
    """The first list may show a pod whose launch request has no answer yet."""
    lists = Lists(GPUS)
    pods = await lists.launch("big", 4)
    await lists.store_as(MachineState.LAUNCHED, pods)
    assert await lists.list_for(30.0) == []
    assert await lists.list_for(30.0) == [f"{pods[3].id} waits for a node for too long"]


@pytest.mark.parametrize("state", [MachineState.TERMINATED, MachineState.LOST])
@on_virtual_time
async def test_a_machine_that_runs_is_not_recorded_as_ended(state: MachineState) -> None:
    lists = Lists(GPUS)
    (pod,) = await lists.launch("gpu", 1)
    await lists.store_as(MachineState.TERMINATING, [pod])
    assert lists.invariants.violations == []
    await lists.store_as(state, [pod])
    assert lists.invariants.violations == [f"{pod.id} runs, and was recorded as ended"]


@on_virtual_time
async def test_a_jump_of_the_clock_excuses_the_loss_of_earlier_machines_for_a_minute() -> None:
    """Found by seed 2515: a list was 45 seconds out of date, and the clock jumped by ten minutes."""
    world = SimulatedWorld(SETTINGS[Fleet.EC2], Schedule(0, (), ()))
    fault = Fault(0.0, FaultKind.CLOCK_JUMP, 600.0, target=-568)
    world._begin(fault)
    await asyncio.sleep(599.0)
    before = world._stranger(next(iter(world.providers)), 1)
    await asyncio.sleep(2.0)
    after = world._stranger(next(iter(world.providers)), 2)
    soon = [world._aged_by_clock(one) for one in (before, after)]
    lists = Lists(GPUS)
    (pod,) = await lists.launch("gpu", 1)
    lists.invariants.aged_by_clock = lambda one: one is pod
    await lists.store_as(MachineState.LOST, [pod])
    await asyncio.sleep(60.0)
    late = [world._aged_by_clock(one) for one in (before, after)]
    assert (soon, late) == ([True, False], [False, False])
    assert lists.invariants.violations == []


@pytest.mark.parametrize("complete", [True, False])
@on_virtual_time
async def test_a_process_has_read_a_pod_although_its_list_expired_later(complete: bool) -> None:
    """Every list of a cluster expires while a pod is about to be deleted (as in seed 245)."""
    short, expired = FaultKind.SHORT_PAGES, FaultKind.LIST_EXPIRED
    kinds = (short,) if complete else (short, expired)
    lists = Lists(GPUS, *(Fault(0.0, kind, 900.0) for kind in kinds))
    evicted, *_ = await lists.launch("gpu", 4)
    await asyncio.sleep(30.0)
    lists.cluster.shut_down(evicted, "", FailureClass.CAPACITY)
    failed = False
    try:
        async for _ in lists.provider.machines():
            pass
    except ProviderError:
        failed = True
    await asyncio.sleep(2 * NOTICED_AFTER)
    assert (failed, evicted.id in lists.cluster.noticed) == (not complete, True)


@pytest.mark.parametrize("state", [MachineState.TERMINATED, MachineState.LOST])
@on_virtual_time
async def test_a_machine_that_ended_is_recorded_as_such(state: MachineState) -> None:
    lists = Lists(GPUS)
    (pod,) = await lists.launch("gpu", 1)
    await asyncio.sleep(30.0)
    lists.cluster.shut_down(pod, POWERED_OFF)
    await lists.store_as(state, [pod])
    assert lists.invariants.violations == []
