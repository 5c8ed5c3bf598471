"""Replicas of a world: how soon another one leads, and what a leader does that stood still."""

import asyncio

import pytest

from autoscaler.model.identifiers import Seconds
from autoscaler.simulator.world.controller.replicas import LEADS_WITHIN, Replicas
from autoscaler.simulator.world.schedule import Fault, FaultKind, JobArrival, Schedule
from autoscaler.simulator.world.world import SimulatedWorld
from tests.chaos.fleet import SETTING_OF_REPLICAS
from tests.chaos.replica_mix import OF_LEADERSHIP
from tests.chaos.worlds import Worlds
from tests.controller.virtual_time import on_virtual_time, run

AT: Seconds = 60.0
EVERY: Seconds = 0.1
JOBS = (JobArrival(AT, 1, ("gpu",), 120.0), JobArrival(AT, 2, ("cpu",), 120.0, cancelled=20.0))
"""One that runs, and one whose machine is terminated because it stays idle."""

POINTS = {AT: range(26, 46), 110.0: range(1, 22), 234.0: range(1, 16)}
"""The calls of ports from a moment on: around the launches, the registration and the termination."""


async def _led_again_after(fault: Fault) -> Seconds:
    """Return how long after a fault of the leader another replica leads."""
    schedule = Schedule(0, (), (fault,), replicas=2)
    world = SimulatedWorld(SETTING_OF_REPLICAS, schedule)
    replicas = world.supervisor
    assert isinstance(replicas, Replicas)
    running = asyncio.create_task(world.run(600.0))
    await asyncio.sleep(fault.at - EVERY)
    (first,) = [one for one in replicas.replicas if one.leads]
    while not any(one.leads for one in replicas.replicas if one is not first):
        await asyncio.sleep(EVERY)
        assert not running.done()
    took = world.fault_schedule.time - fault.at
    await running
    assert world.invariants.violations == []
    return took


@pytest.mark.parametrize(
    ("kind", "within"),
    [
        (FaultKind.LEADER_STOPPED, 2.0),
        (FaultKind.CRASH, LEADS_WITHIN),
        (FaultKind.LEADER_PAUSED, LEADS_WITHIN),
        (FaultKind.STORE_CUT_OFF, LEADS_WITHIN),
    ],
)
@on_virtual_time
async def test_another_replica_leads_soon(kind: FaultKind, within: Seconds) -> None:
    target = 0 if kind is FaultKind.STORE_CUT_OFF else 1
    assert await _led_again_after(Fault(AT, kind, 60.0, target=target)) <= within


async def _sent(pause: Fault | None = None) -> list[Seconds]:
    """Return when the first leader sent what changes something, in a world with these jobs and this pause."""
    faults = () if pause is None else (pause,)
    world = SimulatedWorld(SETTING_OF_REPLICAS, Schedule(0, JOBS, faults, replicas=2))
    replicas, sent = world.supervisor, list[Seconds]()
    assert isinstance(replicas, Replicas)
    running = asyncio.create_task(world.run(600.0))
    await asyncio.sleep(AT - EVERY)
    (process,) = [one.process for one in replicas.replicas if one.leads]
    check = process.sending

    def sending() -> None:
        sent.append(world.fault_schedule.time)
        check()

    process.sending = sending
    await running
    assert world.invariants.violations == []
    return sent


@on_virtual_time
async def test_the_points_are_around_each_request_that_changes_something() -> None:
    sent = await _sent()
    assert all(any(at < one < at + 2.0 for one in sent) for at in POINTS)
    assert all(any(at < one < at + 2.0 for at in POINTS) for one in sent)


@pytest.mark.parametrize(
    "step", [10, pytest.param(1, marks=pytest.mark.systems)], ids=["some", "all"]
)
def test_a_leader_that_stood_still_at_a_call_of_a_port_sends_nothing(step: int) -> None:
    for moment, points in POINTS.items():
        for point in points[::step]:
            pause = Fault(moment, FaultKind.LEADER_PAUSED, 60.0, target=point)
            sent = run(_sent(pause))
            assert (point, [at for at in sent if at > moment + 20.0]) == (point, [])


STREAM = tuple(JobArrival(AT + 5.0 * number, number, ("arm",), 120.0) for number in range(1, 13))
"""At each moment of their first minutes some machines are requested, boot, wait for a registration, or work."""


async def _launched(*faults: Fault) -> int:
    """Return how many machines are launched for the jobs of `STREAM`."""
    world = SimulatedWorld(SETTING_OF_REPLICAS, Schedule(0, STREAM, faults, replicas=2))
    await world.run(1800.0)
    assert world.invariants.violations == []
    launched = [one for each in world.providers.values() for one in each.instances.values()]
    return sum(one.sku == "arm" for one in launched)


@pytest.mark.parametrize("kind", [FaultKind.CRASH, FaultKind.LEADER_STOPPED])
@on_virtual_time
async def test_takeovers_launch_as_many_machines_as_there_are_jobs(kind: FaultKind) -> None:
    faults = (Fault(AT + after, kind, 20.0, target=1) for after in (20.0, 60.0, 100.0))
    assert await _launched(*faults) == len(STREAM)


@on_virtual_time
async def test_machines_that_power_off_before_a_replica_leads_are_replaced() -> None:
    """In a laboratory at 60 times real time, each takeover after a crash takes so long for its machines."""
    assert await _launched(Fault(AT + 40.0, FaultKind.STORE_DOWN, 1000.0)) > len(STREAM)


def test_a_seed_has_two_or_three_replicas_and_faults_of_leadership() -> None:
    schedules = [Worlds.REPLICAS.schedule(seed) for seed in range(100)]
    assert [one.replicas for one in schedules[:4]] == [2, 3, 2, 3]
    assert {fault.kind for one in schedules for fault in one.faults} >= set(OF_LEADERSHIP)
    for schedule in schedules:
        assert len({fault.kind for fault in schedule.faults} & set(OF_LEADERSHIP)) >= 3
        assert max(job.at for job in schedule.jobs) > schedule.faults_end
        assert schedule.lists == any(
            fault.kind is FaultKind.STORE_FAILOVER for fault in schedule.faults
        )
