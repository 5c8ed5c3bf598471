"""Launch requests: machines are bound to the lowest free slots, other slots fail, causes are kept."""

import dataclasses

import pytest

from autoscaler.model import events as e
from autoscaler.model.catalogue import CapacityType, OperatingSystem, Sku
from autoscaler.model.cooldowns import Cooldown, offering_key
from autoscaler.model.identifiers import LaunchRequestId, ProviderMachineId
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.machines.launch_requests import LaunchRequestState
from autoscaler.model.machines.machine import MachineState
from tests.ledger.builders import GPU, START, World, failure
from tests.planner.fleets import catalogue, launched, offering, sku

A, B = "east/g5.xlarge/a/on-demand", "east/g5.xlarge/b/on-demand"
MIXED = catalogue(
    sku(
        offerings=(
            offering(zone="a", dollars=1.0, units=4),
            offering("g5.2xlarge", "b", dollars=1.5, units=8),
            offering("p4d", "a", dollars=1.2, quota="P", units=96),
        )
    )
)


LINUX = sku("linux", offerings=(offering(dollars=1.0),))
WINDOWS = dataclasses.replace(
    sku("windows", offerings=(offering(dollars=1.7),)), os=OperatingSystem.WINDOWS
)
"""SKUs that share an offering, which costs more with a Windows licence."""


def cooldowns(world: World) -> dict[str, float]:
    """The holds in force, by key, as seconds from now."""
    held = world.state.cooldowns.values()
    return {c.key: c.until - world.now for c in held if c.until > world.now}


@pytest.mark.parametrize("skus", [(LINUX, WINDOWS), (WINDOWS, LINUX)])
@pytest.mark.parametrize(("name", "dollars"), [("linux", 1.0), ("windows", 1.7)])
def test_a_machine_counts_at_the_price_for_its_own_operating_system(
    skus: tuple[Sku, ...], name: str, dollars: float
) -> None:
    world = World(catalogue(*skus))
    (slot,) = world.send(1, sku=name)
    assert world.machine(slot).placement.dollars_per_hour == dollars
    world.answer("c", "i-1")
    found = world.machine(slot).placement
    assert (found.provider_id, found.dollars_per_hour) == ("i-1", dollars)


@pytest.mark.case(
    "registrations without a machine and failed runners use up capacity",
    topic="Complaints about other fleets",
    source="ARC#3685",
)
def test_a_recorded_launch_request_counts_each_slot_at_its_most_expensive_offering() -> None:
    world = World(MIXED)
    slots = world.record(2)
    call = world.call()
    assert (call.state, call.slots, call.token, call.body) == (
        LaunchRequestState.RECORDED,
        slots,
        "token-c",
        "",
    )
    assert (call.created_at, call.sent_at, call.attempts) == (START, None, 0)
    first, second = (world.machine(slot) for slot in slots)
    assert (first.state, first.slot, second.slot) == (MachineState.REQUESTED, 0, 1)
    assert (first.placement.dollars_per_hour, first.placement.quota_usage) == (
        1.5,
        (("east/G", 8), ("east/P", 96)),
    )
    assert (first.since, first.created_at, first.due, first.launch_request) == (
        START,
        START,
        None,
        "c",
    )
    assert not first.work.agent_seen
    usage = world.fleet().usage
    assert (usage.machines, usage.dollars_per_hour) == (2, 3.0)
    assert (dict(usage.by_sku), dict(usage.by_quota)) == ({GPU: 2}, {"east/G": 16, "east/P": 192})


def test_a_launched_machine_counts_at_its_actual_price_and_quota() -> None:
    world = World(MIXED)
    (slot,) = world.send(1)
    world.answer("c", "i-1")
    machine = world.machine(slot)
    assert (machine.state, machine.placement.provider_id) == (MachineState.LAUNCHED, "i-1")
    assert (machine.placement.dollars_per_hour, machine.placement.quota_usage) == (
        1.0,
        (("east/G", 4),),
    )
    assert (
        machine.placement.instance_type,
        machine.placement.zone,
        machine.placement.capacity_type,
    ) == (
        "g5.xlarge",
        "a",
        "on-demand",
    )
    assert (machine.placement.image, machine.placement.launch_time, machine.due) == (
        "ami-1",
        "t0",
        START + 900.0,
    )
    assert dict(+world.state.used_by_quota) == {"east/G": 4}
    assert world.state.dollars_used == 1.0


@pytest.mark.parametrize(
    "given",
    [
        launched("i-1", zone="nowhere"),
        launched("i-1", kind="unknown"),
        e.LaunchedMachine(ProviderMachineId("i-1"), "g5.xlarge", "a", CapacityType.SPOT),
    ],
)
def test_a_machine_of_an_unrequested_offering_counts_at_the_most_expensive_one(
    given: e.LaunchedMachine,
) -> None:
    world = World(MIXED)
    (slot,) = world.send(1)
    world.do(e.LaunchRequestAnswered, LaunchRequestId("c"), (given,), ())
    machine = world.machine(slot)
    assert (machine.state, machine.placement.dollars_per_hour) == (MachineState.LAUNCHED, 1.5)
    assert machine.placement.quota_usage == (("east/G", 8), ("east/P", 96))


def test_the_body_of_a_request_does_not_change_after_it_was_sent() -> None:
    world = World()
    world.send(1)
    assert world.call().body == "request-c"
    world.do(e.LaunchRequestPrepared, LaunchRequestId("c"), "another")
    assert world.call().body == "request-c"
    world.do(e.LaunchRequestPrepared, LaunchRequestId("unknown"), "another")


def test_each_sending_is_counted_and_the_first_one_is_dated() -> None:
    world = World()
    world.send(1)
    world.do(e.LaunchOutcomeUnknown, LaunchRequestId("c"), "timed out" * 100)
    call = world.call()
    assert (call.state, call.reason) == (LaunchRequestState.UNKNOWN, ("timed out" * 100)[:500])
    world.now += 5
    world.do(e.LaunchRequestSent, LaunchRequestId("c"))
    assert (call.state, call.attempts, call.sent_at) == (LaunchRequestState.SENT, 2, START)
    assert call.last_sent_at == START + 5
    world.answer("c", "i-1")
    world.do(e.LaunchRequestSent, LaunchRequestId("c"))
    world.do(e.LaunchOutcomeUnknown, LaunchRequestId("c"), "late")
    assert (call.state, call.attempts, call.settled_at) == (
        LaunchRequestState.SETTLED,
        2,
        START + 5,
    )


def test_events_of_unknown_launch_requests_change_nothing() -> None:
    world = World()
    world.ledger.take_changes()
    for event, values in (
        (e.LaunchRequestSent, ()),
        (e.LaunchOutcomeUnknown, ("x",)),
        (e.LaunchRequestCancelled, ("x",)),
        (e.LaunchRequestAnswered, ((launched("i-1"),), ())),
    ):
        world.do(event, LaunchRequestId("c"), *values)
    assert not world.ledger.take_changes()


def test_a_launch_request_that_was_not_sent_has_no_unknown_outcome() -> None:
    world = World()
    world.record(1)
    world.do(e.LaunchOutcomeUnknown, LaunchRequestId("c"), "x")
    assert world.call().state is LaunchRequestState.RECORDED


def test_a_cancelled_launch_request_leaves_no_slot_and_no_hold() -> None:
    world = World()
    slots = world.record(2)
    world.do(e.LaunchRequestCancelled, LaunchRequestId("c"), "its job is gone")
    assert set(world.states().values()) == {MachineState.FAILED}
    assert [world.machine(s).reason for s in slots] == ["cancelled"] * 2
    assert world.fleet().usage.machines == 0
    assert (world.call().state, world.state.open_launch_requests) == (
        LaunchRequestState.SETTLED,
        {},
    )
    assert cooldowns(world) == {}


def test_a_sent_launch_request_cannot_be_cancelled() -> None:
    world = World()
    world.send(1)
    world.do(e.LaunchRequestCancelled, LaunchRequestId("c"), "too late")
    assert (world.call().state, world.states()) == (LaunchRequestState.SENT, {"c0": "requested"})


def test_a_partial_answer_binds_the_lowest_slots_and_fails_the_rest() -> None:
    world = World()
    world.send(3)
    world.answer("c", "i-1", "i-2", failures=[failure(FailureClass.CAPACITY, B, "Insufficient")])
    assert [world.machine(f"c{n}").placement.provider_id for n in range(3)] == ["i-1", "i-2", None]
    left = world.machine("c2")
    assert (left.state, left.failure, left.reason) == (
        MachineState.FAILED,
        FailureClass.CAPACITY,
        "Insufficient: words",
    )
    call = world.call()
    assert (call.state, call.failure, call.reason) == (
        LaunchRequestState.SETTLED,
        FailureClass.CAPACITY,
        "Insufficient: words",
    )
    assert cooldowns(world) == {f"offering:{B}": 180.0}
    assert world.fleet().usage.machines == 2


def test_failures_beside_a_full_answer_put_their_offerings_on_hold() -> None:
    world = World()
    world.send(1)
    world.answer("c", "i-1", failures=[failure(FailureClass.CAPACITY, B)])
    assert (world.call().failure, world.call().reason) == (None, "")
    assert cooldowns(world) == {f"offering:{B}": 180.0}


@pytest.mark.parametrize(
    ("given", "held"),
    [
        (failure(FailureClass.CAPACITY, A), {f"offering:{A}": 180.0}),
        (failure(FailureClass.CAPACITY), {f"offering:{A}": 180.0, f"offering:{B}": 180.0}),
        (failure(FailureClass.CAPACITY, "??"), {f"offering:{A}": 180.0, f"offering:{B}": 180.0}),
        (failure(FailureClass.QUOTA, A), {"quota:east/G": 60.0}),
        (failure(FailureClass.QUOTA), {"quota:east/G": 60.0}),
        (failure(FailureClass.THROTTLED), {"throttle:east": 5.0}),
        (failure(FailureClass.CONFIGURATION, A), {f"offering:{A}/gpu": 60.0}),
        (failure(FailureClass.CONFIGURATION), {"option:gpu/0": 60.0}),
        (failure(FailureClass.UNKNOWN), {"option:gpu/0": 30.0}),
    ],
)
def test_the_hold_depends_on_the_failure(given: e.LaunchFailure, held: dict[str, float]) -> None:
    world = World()
    world.send(1)
    world.answer("c", failures=[given])
    assert cooldowns(world) == held
    assert all(c.reason == "Code: words" for c in world.state.cooldowns.values())
    assert world.machine("c0").failure is given.failure


def test_retry_after_makes_the_hold_longer() -> None:
    world = World()
    world.send(1)
    world.answer("c", failures=[failure(FailureClass.THROTTLED)], retry=42.0)
    assert cooldowns(world) == {"throttle:east": 42.0}


def test_an_unknown_outcome_with_retry_after_holds_all_launches_of_the_provider_back() -> None:
    world = World()
    world.send(1)
    world.do(e.LaunchOutcomeUnknown, LaunchRequestId("c"), "503", 40.0)
    assert world.call().state is LaunchRequestState.UNKNOWN
    assert cooldowns(world) == {"throttle:east": 40.0}
    # A second report about the same attempt changes nothing.
    world.do(e.LaunchOutcomeUnknown, LaunchRequestId("c"), "no new answer", 400.0)
    assert cooldowns(world) == {"throttle:east": 40.0}


def test_a_simultaneous_failure_with_retry_after_extends_the_hold() -> None:
    world = World()
    world.send(1, "a")
    world.send(1, "b")
    world.answer("a", failures=[failure(FailureClass.THROTTLED)])
    world.now += 1
    world.answer("b", failures=[failure(FailureClass.THROTTLED)], retry=60.0)
    assert world.state.cooldowns["throttle:east"].failures == 1
    assert cooldowns(world) == {"throttle:east": 60.0}


def test_simultaneous_failures_of_several_launch_requests_are_one_failure() -> None:
    world = World()
    for name in "abc":
        world.send(1, name)
    for name in "abc":
        world.answer(name, failures=[failure(FailureClass.CAPACITY, A)])
        world.now += 1
    assert world.state.cooldowns[f"offering:{A}"] == Cooldown(
        f"offering:{A}", START + 180.0, 1, "Code: words", FailureClass.CAPACITY, error="Code"
    )


def test_an_empty_answer_without_an_error_counts_as_no_capacity() -> None:
    world = World()
    world.send(1)
    world.answer("c")
    assert cooldowns(world) == {f"offering:{A}": 180.0, f"offering:{B}": 180.0}
    assert (
        world.state.cooldowns[f"offering:{A}"].reason
        == "Empty: the provider launched no machine and gave no reason"
    )
    assert world.machine("c0").reason == "the provider launched fewer machines and gave no reason"


def test_the_slots_get_the_most_serious_failure_of_the_answer() -> None:
    world = World()
    kinds = [
        FailureClass.CAPACITY,
        FailureClass.THROTTLED,
        FailureClass.UNKNOWN,
        FailureClass.QUOTA,
        FailureClass.CONFIGURATION,
    ]
    for number in range(1, 6):
        world.send(1, f"c{number}-")
        world.answer(f"c{number}-", failures=[failure(kind) for kind in kinds[:number]])
        assert world.call(f"c{number}-").failure is kinds[number - 1]
        assert world.machine(f"c{number}-0").failure is kinds[number - 1]


def test_a_launched_machine_ends_the_holds_of_earlier_failures() -> None:
    world = World()
    world.send(1, "a")
    keys = (f"offering:{A}", f"offering:{B}", "quota:east/G", "throttle:east", "option:gpu/0")
    kinds = (FailureClass.CAPACITY, FailureClass.QUOTA, FailureClass.THROTTLED)
    world.answer("a", failures=[failure(k) for k in (*kinds, FailureClass.UNKNOWN)])
    assert set(cooldowns(world)) == set(keys)
    world.now += 600.0
    world.send(1, "b")
    world.answer("b", "i-1")
    # A launched machine proves that the offering works; only a ready one proves the launch option.
    held = {key for key, known in world.state.cooldowns.items() if known.failures}
    assert held == {f"offering:{B}", "option:gpu/0"}
    world.boot("b0")
    world.do(e.HealthChecksReported, "b0", True, "")
    assert world.state.cooldowns["option:gpu/0"].failures == 0


def test_an_answer_that_repeats_known_machines_binds_nothing_twice() -> None:
    world = World()
    world.send(2)
    world.answer("c", "i-1", "i-2")
    world.answer("c", "i-1", "i-2")
    assert [world.machine(f"c{n}").placement.provider_id for n in range(2)] == ["i-1", "i-2"]
    assert world.states() == {"c0": "launched", "c1": "launched"}


def test_an_answer_never_binds_more_machines_than_slots() -> None:
    world = World()
    world.send(1)
    world.answer("c", "i-1", "i-2")
    assert world.states() == {"c0": "launched"}
    assert "i-2" not in world.state.by_provider_id


def test_an_answer_applied_in_pieces_may_be_interrupted_by_a_restart() -> None:
    world = World()
    world.send(3)
    machines = tuple(launched(f"i-{number}") for number in range(3))
    world.do(e.LaunchRequestAnswered, LaunchRequestId("c"), machines[:2], (), None, True)
    assert world.call().state is LaunchRequestState.SENT
    assert sorted(world.states().values()) == ["launched", "launched", "requested"]
    world.restart(10.0)
    assert world.call().state is LaunchRequestState.UNKNOWN, "it is sent again"
    world.do(e.LaunchRequestSent, LaunchRequestId("c"))
    world.do(e.LaunchRequestAnswered, LaunchRequestId("c"), machines, (), None)
    assert world.call().state is LaunchRequestState.SETTLED
    assert {m.placement.provider_id for m in world.state.machines.values()} == {"i-0", "i-1", "i-2"}


def test_the_history_of_an_answer_in_pieces_counts_all_of_them() -> None:
    world = World()
    world.send(3)
    machines = tuple(launched(f"i-{number}") for number in range(3))
    world.do(e.LaunchRequestAnswered, LaunchRequestId("c"), machines[:2], (), None, True)
    world.do(e.LaunchRequestAnswered, LaunchRequestId("c"), machines[2:], (), None)
    rows = world.state.take_changes().history
    assert [row.detail for row in rows if row.event == "answered"] == ["3 of 3"]


def test_a_failure_of_an_offering_that_left_the_catalogue_puts_no_other_on_hold() -> None:
    """A zone stops selling a type while a call is in flight, and the answer says so."""
    world = World(MIXED)
    world.send(2)
    gone, *others = world.call().offerings
    state = world.state
    del state.offerings[gone]
    failed = e.LaunchFailure(FailureClass.UNSUPPORTED, "Unsupported", "not in this zone", gone)
    world.do(e.LaunchRequestAnswered, LaunchRequestId("c"), (launched("i-1"),), (failed,), None)
    assert not any(offering_key(one) in state.cooldowns for one in others)
