"""Back-off: first hold, growth, longest hold, and failures at the same time count once."""

import pytest

from autoscaler.ledger.failures.cooldowns import end_holds_of_launch
from autoscaler.ledger.failures.failure_counts import count_failure, end_hold
from autoscaler.ledger.records.state import LedgerState
from autoscaler.model import events as e
from autoscaler.model.catalogue import CapacityType
from autoscaler.model.cooldowns import (
    Cooldown,
    capacity_type_key,
    offering_key,
    quota_key,
    sku_offering_key,
    throttle_key,
    zone_key,
)
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.machines.machine import TerminationReason
from autoscaler.model.reasons.table import WaitCode
from tests.ledger.builders import GPU, World, failure
from tests.planner.fleets import EAST, catalogue, offering

HOLDS = {
    FailureClass.CAPACITY: [180.0, 360.0, 720.0, 1440.0, 1800.0, 1800.0],
    FailureClass.QUOTA: [60.0, 60.0, 60.0],
    FailureClass.THROTTLED: [5.0, 10.0, 20.0, 40.0, 60.0, 60.0],
    FailureClass.CONFIGURATION: [60.0, 60.0, 60.0],
    FailureClass.UNSUPPORTED: [21600.0, 43200.0, 86400.0, 86400.0],
    FailureClass.HEALTH_CHECK: [600.0, 1200.0, 2400.0, 3600.0, 3600.0],
    FailureClass.UNKNOWN: [30.0, 60.0, 60.0, 60.0, 60.0, 60.0, 60.0],
}


@pytest.mark.case(
    "an unknown error code: tried again with growing delay, and shown",
    topic="EC2's API",
    source="EC2: error codes",
)
@pytest.mark.parametrize("failure", list(HOLDS))
def test_each_failure_in_a_row_doubles_the_hold_up_to_the_longest(failure: FailureClass) -> None:
    state, now = LedgerState(catalogue()), 0.0
    for number, hold in enumerate(HOLDS[failure], start=1):
        count_failure(state, "k", failure, now, f"why {number}")
        assert state.cooldowns["k"] == Cooldown("k", now + hold, number, f"why {number}", failure)
        now += hold


def test_the_hold_stays_at_its_maximum_after_many_failures() -> None:
    state = LedgerState(catalogue())
    state.cooldowns["k"] = Cooldown("k", 0.0, 5000, "why", FailureClass.CAPACITY)
    count_failure(state, "k", FailureClass.CAPACITY, 10.0, "again")
    assert state.cooldowns["k"] == Cooldown("k", 1810.0, 5001, "again", FailureClass.CAPACITY)


def test_failures_of_requests_in_flight_together_count_once() -> None:
    state = LedgerState(catalogue())
    count_failure(state, "k", FailureClass.CAPACITY, 0.0, "first")
    count_failure(state, "k", FailureClass.CAPACITY, 179.9, "second")
    assert state.cooldowns["k"] == Cooldown("k", 180.0, 1, "first", FailureClass.CAPACITY)
    count_failure(state, "k", FailureClass.CAPACITY, 180.0, "third")
    assert state.cooldowns["k"] == Cooldown("k", 540.0, 2, "third", FailureClass.CAPACITY)


@pytest.mark.case(
    "an error after minutes of throttling counts as the first one of its class",
    topic="EC2's API",
    source="EC2: request throttling",
)
@pytest.mark.parametrize("first", list(HOLDS))
@pytest.mark.parametrize("other", list(HOLDS))
def test_failures_are_counted_per_failure_class(first: FailureClass, other: FailureClass) -> None:
    """After an hour of throttling, the first refusal of another class causes its shortest hold."""
    state, now = LedgerState(catalogue()), 0.0
    for hold in HOLDS[first]:
        count_failure(state, "k", first, now, "again")
        now += hold
    count_failure(state, "k", other, now, "another")
    failures = len(HOLDS[first]) + 1 if other is first else 1
    hold = HOLDS[other][-1 if other is first else 0]
    assert state.cooldowns["k"] == Cooldown("k", now + hold, failures, "another", other)


@pytest.mark.case(
    "an error after minutes of throttling counts as the first one of its class",
    topic="EC2's API",
    source="EC2: request throttling",
)
def test_the_longer_hold_of_two_failure_classes_applies() -> None:
    state = LedgerState(catalogue())
    for at in (0.0, 5.0):
        count_failure(state, "k", FailureClass.THROTTLED, at, "slow down")
    count_failure(state, "k", FailureClass.CAPACITY, 6.0, "none left")
    longer = Cooldown("k", 186.0, 1, "none left", FailureClass.CAPACITY)
    assert state.cooldowns["k"] == longer
    count_failure(state, "k", FailureClass.THROTTLED, 7.0, "slow down")
    count_failure(state, "k", FailureClass.CONFIGURATION, 126.0, "not allowed")
    assert state.cooldowns["k"] == longer, "sixty seconds more end at the same moment"
    count_failure(state, "k", FailureClass.THROTTLED, 150.0, "slow down", 60.0)
    assert state.cooldowns["k"] == Cooldown("k", 210.0, 1, "slow down", FailureClass.THROTTLED)


def test_alternating_failure_classes_do_not_extend_the_hold() -> None:
    state, now = LedgerState(catalogue()), 0.0
    for kind, hold in [(FailureClass.THROTTLED, 5.0), (FailureClass.CONFIGURATION, 60.0)] * 9:
        count_failure(state, "k", kind, now, "why")
        assert state.cooldowns["k"] == Cooldown("k", now + hold, 1, "why", kind)
        now += hold


def test_refused_launch_requests_do_not_count_as_failed_machines() -> None:
    world = World()
    for number in range(2):
        count_failure(
            world.state, "option:gpu/0", FailureClass.CONFIGURATION, world.now, "no image"
        )
        world.now += 60.0 * 2.0**number
    world.launch(1)
    world.do(e.TerminationRequested, "c0", TerminationReason.DEADLINE, "late")
    assert world.state.cooldowns["option:gpu/0"] == Cooldown(
        "option:gpu/0", world.now, 1, "late", FailureClass.BOOT_DEADLINE
    )


@pytest.mark.parametrize(("at_least", "until"), [(0.0, 5.0), (4.0, 5.0), (30.0, 30.0)])
def test_a_provider_may_ask_for_a_longer_hold(at_least: float, until: float) -> None:
    state = LedgerState(catalogue())
    count_failure(state, "k", FailureClass.THROTTLED, 0.0, "slow down", at_least)
    assert state.cooldowns["k"].until == until


def test_a_success_resets_the_backoff() -> None:
    state = LedgerState(catalogue())
    count_failure(state, "k", FailureClass.CAPACITY, 0.0, "why")
    count_failure(state, "k", FailureClass.CAPACITY, 200.0, "why")
    end_hold(state, "k", 250.0)
    assert state.cooldowns["k"] == Cooldown("k", 250.0, 0, "")
    count_failure(state, "k", FailureClass.CAPACITY, 260.0, "again")
    assert state.cooldowns["k"] == Cooldown("k", 440.0, 1, "again", FailureClass.CAPACITY)


def test_ending_a_hold_that_is_over_stores_nothing() -> None:
    state = LedgerState(catalogue())
    end_hold(state, "k", 1.0)
    assert (state.cooldowns, state.take_changes().cooldowns) == ({}, ())
    count_failure(state, "k", FailureClass.CAPACITY, 0.0, "why")
    end_hold(state, "k", 5.0)
    state.take_changes()
    end_hold(state, "k", 9.0)
    assert state.take_changes().cooldowns == ()
    assert state.cooldowns["k"].until == 5.0


def test_a_launched_machine_ends_the_holds_of_its_offering_quota_configuration_and_throttle() -> (
    None
):
    world, sold = World(), offering()
    world.send(1)
    request, state = world.call(), world.state
    keys = {
        sku_offering_key(GPU, sold.key): FailureClass.CONFIGURATION,
        offering_key(sold.key): FailureClass.CAPACITY,
        quota_key("east/G"): FailureClass.QUOTA,
        throttle_key(EAST): FailureClass.THROTTLED,
        "option:gpu/0": FailureClass.CONFIGURATION,
    }
    for key, kind in keys.items():
        count_failure(state, key, kind, 0.0, "why", 600.0)
    end_holds_of_launch(state, request, sold, 599.9, 610.0)
    assert all(c.failures for c in state.cooldowns.values()), "asked for during the hold"
    end_holds_of_launch(state, request, sold, 600.0, 610.0)
    assert not any(c.failures for c in state.cooldowns.values())


@pytest.mark.parametrize(
    ("kind", "image"), [(FailureClass.UNKNOWN, ""), (FailureClass.CONFIGURATION, "ami-1")]
)
def test_a_launched_machine_does_not_end_a_hold_that_machines_caused(
    kind: FailureClass, image: str
) -> None:
    world = World()
    world.send(1)
    count_failure(world.state, "option:gpu/0", kind, 0.0, "why", image=image)
    end_holds_of_launch(world.state, world.call(), offering(), 600.0, 610.0)
    assert world.state.cooldowns["option:gpu/0"].failures == 1


@pytest.mark.parametrize("kind", [FailureClass.CONFIGURATION, FailureClass.QUOTA])
def test_machines_that_cannot_start_are_held_for_longer_than_refused_requests(
    kind: FailureClass,
) -> None:
    state, now, held = LedgerState(catalogue()), 0.0, []
    for _ in range(6):
        count_failure(state, "k", kind, now, "why", image="ami-1")
        held.append(state.cooldowns["k"].until - now)
        now = state.cooldowns["k"].until
    assert held == [60.0, 120.0, 240.0, 480.0, 900.0, 900.0]


def test_cooldowns_are_stored_once_each_time_they_change() -> None:
    state = LedgerState(catalogue())
    count_failure(state, "k", FailureClass.CAPACITY, 0.0, "why")
    end_hold(state, "k", 5.0)
    assert state.take_changes().cooldowns == (Cooldown("k", 5.0, 0, ""),)
    assert state.take_changes().cooldowns == ()


@pytest.mark.case(
    "machines of a launch option fail one after the other: the launch option is on hold",
    topic="EC2's machines",
    source="GAR#5007",
)
def test_from_three_failed_machines_in_a_row_the_launch_option_is_on_hold_with_backoff() -> None:
    world = World()
    held = []
    for number in range(5):
        name = f"n{number}"
        world.launch(1, name)
        world.boot(f"{name}0")
        world.do(e.HealthChecksReported, f"{name}0", False, "no gpu")
        held.append(world.state.cooldowns["option:gpu/0"].until - world.now)
        world.now += 1000
    assert held == [0, 0, 30, 60, 120]
    assert world.state.cooldowns["option:gpu/0"].reason == "health checks: no gpu"


def test_a_machine_that_becomes_ready_resets_the_failure_count() -> None:
    world = World()
    for number, passed in enumerate([False, False, True, False]):
        name = f"n{number}"
        world.launch(1, name)
        world.boot(f"{name}0")
        world.do(e.HealthChecksReported, f"{name}0", passed, "")
    assert world.state.cooldowns["option:gpu/0"].failures == 1


def test_a_machine_that_never_attests_counts_as_failed() -> None:
    world = World()
    world.launch(1)
    world.do(e.TerminationRequested, "c0", TerminationReason.DEADLINE, "late")
    assert world.state.cooldowns["option:gpu/0"].failures == 1
    assert world.machine("c0").failure is FailureClass.BOOT_DEADLINE


def test_only_a_failure_that_extends_the_hold_replaces_its_reason() -> None:
    state = LedgerState(catalogue())
    count_failure(state, "k", FailureClass.THROTTLED, 0.0, "first", 60.0)
    count_failure(state, "k", FailureClass.THROTTLED, 0.0, "second", 60.0)
    assert state.cooldowns["k"] == Cooldown("k", 60.0, 1, "first", FailureClass.THROTTLED)
    count_failure(state, "k", FailureClass.THROTTLED, 0.0, "third", 61.0)
    assert state.cooldowns["k"] == Cooldown("k", 61.0, 1, "third", FailureClass.THROTTLED)


def test_a_failure_of_an_old_launch_request_does_not_extend_the_hold() -> None:
    world = World()
    world.send(1)
    world.send(1, "d")
    world.answer("c", failures=[failure(FailureClass.CAPACITY)])
    held = dict(world.state.cooldowns)
    world.now += 179.9
    world.answer("d", failures=[failure(FailureClass.CAPACITY)])
    assert world.state.cooldowns == held


def test_the_hold_after_an_empty_answer_lasts_as_long_as_the_provider_asks() -> None:
    world = World()
    world.send(1)
    world.answer("c", retry=900.0)
    assert {hold.until - world.now for hold in world.state.cooldowns.values()} == {900.0}


def test_a_launch_option_on_hold_shows_why_its_last_machine_failed() -> None:
    world = World()
    for name in ("c", "d", "e"):
        (machine,) = world.launch(1, name)
        world.do(
            e.TerminationRequested,
            machine,
            TerminationReason.DEADLINE,
            f"no attestation from {name}",
        )
    (hold,) = (h for h in world.state.cooldowns.values() if h.until > world.now)
    assert hold == Cooldown(
        "option:gpu/0", world.now + 30.0, 3, "no attestation from e", FailureClass.BOOT_DEADLINE
    )


@pytest.mark.parametrize("late", [False, True])
def test_machines_that_fail_in_several_ways_count_together_and_the_last_one_is_the_reason(
    late: bool,
) -> None:
    """Before, the jobs waited for `unknown`, as if the provider had refused the launch."""
    world = World()
    world.queue(1)
    for number in range(3):
        [machine] = world.launch(1, f"n{number}")
        if (number == 2) is late:
            world.do(e.TerminationRequested, machine, TerminationReason.DEADLINE, "late")
        else:
            world.boot(machine)
            world.do(e.HealthChecksReported, machine, False, "no gpu")
    [waiting] = world.plan().waiting.values()
    expected = WaitCode.BOOT_DEADLINE if late else WaitCode.HEALTH_CHECK
    assert [(one.code, one.reasons[0].until) for one in waiting] == [(expected, world.now + 30.0)]


def test_a_failures_message_is_bounded() -> None:
    world = World()
    world.send(2)
    world.answer("c", "i-1", failures=[failure(FailureClass.CAPACITY, message="x" * 1000)])
    assert {len(hold.reason) for hold in world.state.cooldowns.values() if hold.failures} == {300}
    assert len(world.machine("c1").reason) == 300


def test_a_machine_that_becomes_ready_ends_the_holds_of_its_zone_and_capacity_type() -> None:
    world = World()
    keys = (zone_key(EAST, "a"), capacity_type_key(EAST, CapacityType.ON_DEMAND))
    for key in keys:
        count_failure(world.state, key, FailureClass.CAPACITY, world.now, "full")
    world.now += 180.0
    (machine,) = world.launch(1)
    world.boot(machine)
    world.do(e.HealthChecksReported, machine, True, "")
    assert [world.state.cooldowns[k] for k in keys] == [Cooldown(k, world.now, 0, "") for k in keys]


def test_a_machine_requested_after_a_hold_ends_it_when_it_is_launched() -> None:
    world = World()
    keys = (offering_key(world.keys()[0]), quota_key("east/G"), throttle_key(EAST))
    for key in keys:
        count_failure(world.state, key, FailureClass.THROTTLED, world.now, "busy")
    world.now += 600.0
    world.send(1)
    world.now += 1.0
    world.answer("c", "i-1")
    assert [world.state.cooldowns[k] for k in keys] == [Cooldown(k, world.now, 0, "") for k in keys]
