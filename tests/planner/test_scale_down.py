"""Scale down: idle machines, machines ready for too long, and launch requests that were not sent."""

import pytest

from autoscaler.model import events as e
from autoscaler.model.catalogue import CapacityType, IdlePolicy, Limits, ScheduledMinimum
from autoscaler.model.identifiers import LaunchRequestId, MachineId
from autoscaler.model.machines.machine import TerminationReason
from autoscaler.model.plan import Assign, CancelLaunchRequest, Launch, Terminate
from tests.ledger.builders import GPU, START, World
from tests.planner.fleets import EAST, catalogue, offering, sku


def world_with(policy: IdlePolicy, ready: str = "") -> World:
    """Return a world with a machine for each letter, ready a minute apart."""
    world = World(catalogue(sku(idle=policy)))
    for name in ready:
        world.make_ready(1, name)
        world.now += 60
    return world


def alive(world: World) -> World:
    """Let the agent of every machine report now."""
    for machine in list(world.state.machines.values()):
        world.do(e.MachineSeen, machine.id)
    return world


def ends(world: World) -> list[tuple[str, str]]:
    return [(end.machine, end.reason_code.value) for end in world.intents(Terminate)]


@pytest.mark.parametrize(("waited", "ended"), [(599.9, []), (600.0, [("a0", "idle")])])
def test_an_idle_machine_is_terminated_after_its_idle_time(
    waited: float, ended: list[tuple[str, str]]
) -> None:
    world = world_with(IdlePolicy(), "a")
    world.now = START + waited
    assert ends(alive(world)) == ended
    if ended:
        assert world.intents(Terminate)[0].reason == "idle for 600 s"


def test_the_machines_ready_longest_are_terminated_first() -> None:
    world = world_with(IdlePolicy(timeout=300.0), "abc")
    world.now = START + 360
    assert ends(alive(world)) == [("a0", "idle"), ("b0", "idle")]


def test_machines_that_jobs_or_the_minimum_need_stay() -> None:
    world = world_with(IdlePolicy(minimum=1, timeout=300.0), "abc")
    world.now = START + 3600
    assert ends(alive(world)) == [("a0", "idle"), ("b0", "idle")]
    world.queue(1)
    assert ends(world) == [("a0", "idle")]
    world.queue(2)
    assert ends(world) == []


def test_a_machine_assigned_in_this_plan_is_not_terminated_as_idle() -> None:
    world = world_with(IdlePolicy(timeout=60.0), "ab")
    world.now = START + 3600
    alive(world).queue(1)
    assert ends(world) == [("a0", "idle")]


def test_a_scheduled_minimum_keeps_machines_and_lets_them_go_afterwards() -> None:
    start = ScheduledMinimum("*/10 * * * *", "UTC", 300.0, 2)
    world = World(catalogue(sku(idle=IdlePolicy(0, 120.0, (start,)))), now=600_000.0)
    world.make_ready(2)
    world.now += 299
    assert ends(alive(world)) == []
    world.now += 1
    assert ends(alive(world)) == [("c0", "idle"), ("c1", "idle")]


def test_the_idle_time_starts_again_after_a_deregistration() -> None:
    world = world_with(IdlePolicy(timeout=300.0), "a")
    world.now = START + 290
    name = world.name("a0")
    world.do(e.RunnerDeregistered, name, "no queued job needs it")
    world.now = START + 589
    assert ends(alive(world)) == []
    world.now = START + 590
    assert ends(alive(world)) == [("a0", "idle")]


def test_assigned_and_booting_machines_are_never_idle() -> None:
    world = World(catalogue(sku(idle=IdlePolicy(timeout=10.0))))
    world.ready("a")
    world.launch(1, "b")
    world.now += 100
    assert ends(world) == []


def test_machines_that_have_not_reported_since_the_start_are_not_terminated_as_idle() -> None:
    world = world_with(IdlePolicy(timeout=30.0), "a")
    world.restart(10.0)
    assert ends(world) == []


@pytest.mark.parametrize(("age", "ended"), [(3599.9, []), (3600.0, [("a0", "max_age")])])
def test_a_machine_ready_too_long_is_replaced(age: float, ended: list[tuple[str, str]]) -> None:
    world = world_with(IdlePolicy(minimum=1, max_age=3600.0), "a")
    world.now = START + age
    assert ends(alive(world)) == ended
    if ended:
        assert [type(i) for i in world.plan().intents] == [Terminate, Launch]
        assert world.intents(Terminate)[0].reason == "ready for 3600 s"
        world.carry_out()
        assert world.plan().intents == ()


@pytest.mark.parametrize(("later", "ended"), [(899.9, []), (900.0, [("a0", "surplus")])])
def test_a_ready_machine_whose_capacity_is_taken_back_soon_gets_no_job(
    later: float, ended: list[tuple[str, str]]
) -> None:
    policy = IdlePolicy(timeout=86400.0, max_age=3600.0)
    ending = offering(until=START + 900.0, target="cr-1")
    world = World(catalogue(sku(offerings=(ending,), idle=policy)))
    world.make_ready(1, "a")
    world.now = START + later
    alive(world)
    assert ends(world) == ended
    world.queue(1)
    assert len(world.intents(Assign)) == (not ended)
    if ended:
        assert world.intents(Terminate)[0].reason == "the provider takes its capacity back soon"


def test_an_assigned_machine_stays_when_its_capacity_is_taken_back_soon() -> None:
    ending = offering(until=START + 900.0, target="cr-1")
    world = World(catalogue(sku(offerings=(ending,))))
    world.ready("a")
    world.now = START + 900.0
    assert ends(alive(world)) == []


def test_age_counts_from_the_first_readiness_not_from_the_last_assignment() -> None:
    world = world_with(IdlePolicy(minimum=1, max_age=3600.0), "a")
    world.now = START + 1800
    world.do(e.RunnerDeregistered, world.name("a0"), "no queued job needs it")
    world.now = START + 3600
    assert ends(alive(world)) == [("a0", "max_age")]


def test_the_age_is_a_deadline_from_the_first_poll_after_a_start() -> None:
    world = world_with(IdlePolicy(max_age=3600.0), "a")
    world.now = START + 3590
    assert alive(world).machine("a0").due == START + 3600
    world.restart(10.0)
    world.now += 20
    assert world.plan().intents == ()
    world.do(e.MachineSeen, MachineId("a0"), True)
    assert world.machine("a0").due == START + 3600
    assert ends(world) == [("a0", "max_age")]


def test_a_machine_is_terminated_once_whatever_the_reasons() -> None:
    world = world_with(IdlePolicy(max_age=3600.0), "a")
    world.now = START + 3600
    assert ends(world) == [("a0", "deadline")]
    assert ends(alive(world)) == [("a0", "max_age")]
    world.carry_out()
    assert world.machine("a0").termination.reason is TerminationReason.MAX_AGE


def launch(world: World, count: int, reason: str) -> Launch:
    return Launch(GPU, EAST, 0, CapacityType.ON_DEMAND, world.keys(), count, reason)


def cut(world: World) -> list[CancelLaunchRequest | Launch]:
    return [i for i in world.plan().intents if isinstance(i, CancelLaunchRequest | Launch)]


@pytest.mark.case(
    "cancelled jobs leave machines behind",
    topic="Complaints about other fleets",
    source="GAR#1853",
)
def test_an_unsent_launch_request_is_cancelled_with_its_jobs() -> None:
    world = World()
    world.queue(1, 2)
    world.record(2)
    assert cut(world) == []
    world.completes(1)
    world.completes(2)
    assert cut(world) == [
        CancelLaunchRequest(LaunchRequestId("c"), "no longer needed: 2 of 2 machines")
    ]
    world.carry_out()
    assert world.plan().intents == ()


def test_a_launch_request_needed_only_in_part_is_replaced_by_a_smaller_one() -> None:
    world = World()
    world.queue(1, 2, 3)
    world.record(3)
    world.completes(2)
    assert cut(world) == [
        CancelLaunchRequest(LaunchRequestId("c"), "no longer needed: 1 of 3 machines"),
        launch(world, 2, "instead of c, which asked for 1 machine too many"),
    ]
    world.carry_out()
    assert world.plan().intents == ()
    assert [len(call.slots) for call in world.state.open_launch_requests.values()] == [2]


def test_the_newest_launch_requests_are_reduced_first() -> None:
    world = World()
    world.queue(1, 2, 3, 4)
    world.record(2, "a")
    world.now += 1
    world.record(1, "b")
    world.record(1, "d")
    for job in (1, 2, 3):
        world.completes(job)
    assert cut(world) == [
        CancelLaunchRequest(LaunchRequestId("d"), "no longer needed: 1 of 1 machine"),
        CancelLaunchRequest(LaunchRequestId("b"), "no longer needed: 1 of 1 machine"),
        CancelLaunchRequest(LaunchRequestId("a"), "no longer needed: 1 of 2 machines"),
        launch(world, 1, "instead of a, which asked for 1 machine too many"),
    ]


def test_a_sent_launch_request_is_not_reduced() -> None:
    world = World()
    world.queue(1)
    world.send(1)
    world.completes(1)
    assert world.plan().intents == ()


def test_an_unsent_launch_request_is_cancelled_if_a_machine_becomes_ready() -> None:
    world = World()
    world.queue(1)
    world.record(1)
    world.make_ready(1, "p")
    assert isinstance(world.plan().intents[0], CancelLaunchRequest)


@pytest.mark.parametrize(
    "limits", [Limits(machines=1), Limits(dollars_per_hour=1.0), Limits(quotas={"east/G": 4})]
)
def test_headroom_of_a_cancelled_launch_request_is_used_in_the_same_plan(limits: Limits) -> None:
    world = World(catalogue(sku("gpu"), sku("cpu"), limits=limits))
    world.queue(1)
    world.record(1)
    world.completes(1)
    world.queue(2, labels=("cpu",))
    cancelled, launched = cut(world)
    assert isinstance(cancelled, CancelLaunchRequest)
    assert isinstance(launched, Launch)
    assert (cancelled.launch_request, launched.sku, launched.count) == ("c", "cpu", 1)


def test_a_ready_machine_of_the_minimum_has_no_idle_time() -> None:
    world = world_with(IdlePolicy(minimum=1, timeout=60.0), "a")
    for _ in range(5):
        world.now += 600
        assert ends(alive(world)) == []
    assert world.machine(MachineId("a0")).progress.ready_at == START


def test_an_older_launch_request_is_reduced_after_the_newer_ones() -> None:
    world = World()
    world.queue(1, 2, 3, 4, 5)
    world.record(3, "a")
    world.now += 1
    world.record(2, "b")
    for job in (1, 2, 3):
        world.completes(job)
    cancelled = [
        (i.launch_request, i.reason) for i in cut(world) if isinstance(i, CancelLaunchRequest)
    ]
    assert cancelled == [
        ("b", "no longer needed: 2 of 2 machines"),
        ("a", "no longer needed: 1 of 3 machines"),
    ]
