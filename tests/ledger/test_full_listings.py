"""Launch requests without an answer: bound by tag, repeated, written off after two full listings."""

from dataclasses import replace

import pytest

from autoscaler.model import events as e
from autoscaler.model.cooldowns import Cooldown
from autoscaler.model.identifiers import LaunchRequestId
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.machines.launch_requests import LaunchRequestState
from autoscaler.model.machines.machine import MachineState
from autoscaler.model.plan import Terminate
from tests.ledger.builders import START, WHY, World, listed


def unknown(slots: int = 1, *, repeated_after: float | None = None) -> World:
    """A call sent at START whose outcome is unknown."""
    world = World()
    world.send(slots)
    world.do(e.LaunchOutcomeUnknown, LaunchRequestId("c"), "timed out")
    if repeated_after is not None:
        world.now += repeated_after
        world.do(e.LaunchRequestSent, LaunchRequestId("c"))
        world.do(e.LaunchOutcomeUnknown, LaunchRequestId("c"), "timed out")
    return world


def lists_at(world: World, *moments: float, complete: bool = True) -> list[str]:
    """Apply empty listings that began at these seconds after START. Return the slot's state after each."""
    seen = []
    for moment in moments:
        world.now = START + moment
        world.lists(complete=complete)
        seen.append(world.machine("c0").state.value)
    return seen


@pytest.mark.case(
    "an answer is lost, and a list shows the machines by their tag",
    topic="EC2's API",
    source="EC2: CreateFleet",
)
def test_a_listing_binds_the_machines_of_a_lost_answer_to_the_lowest_slots() -> None:
    world = unknown(3)
    world.lists(listed("i-1"), listed("i-2"), complete=False)
    assert [world.machine(f"c{n}").placement.provider_id for n in range(3)] == ["i-1", "i-2", None]
    assert world.machine("c0").placement.launch_time == "t0"
    assert world.call().state is LaunchRequestState.UNKNOWN


@pytest.mark.case(
    "a pod ends before its launch request is answered, and a list shows it: a repeat would adopt it",
    topic="Kubernetes",
    source="Kubernetes: Pod Lifecycle",
)
@pytest.mark.parametrize("complete", [True, False])
def test_a_machine_that_ended_before_the_answer_takes_its_slot_and_is_terminated(
    complete: bool,
) -> None:
    """Found by seeds 125 and 147 of the worlds with clusters: it counted as launched until the next list."""
    world = unknown(2)
    refused = replace(
        listed("i-1", terminated=True, reason="UnexpectedAdmissionError: no device"),
        failure=FailureClass.CAPACITY,
    )
    world.lists(refused, complete=complete)
    assert world.states() == {"c0": "terminated", "c1": "requested"}
    ended = world.machine("c0")
    assert (ended.failure, ended.reason) == (FailureClass.CAPACITY, refused.reason)
    assert world.state.cooldowns["offering:east/g5.xlarge/a/on-demand"].failures == 1
    world.answer("c", "i-1", "i-2")
    assert world.states() == {"c0": "terminated", "c1": "launched"}
    assert world.machine("c1").placement.provider_id == "i-2"


@pytest.mark.parametrize("sent", [True, False])
def test_a_machine_that_ended_fills_no_slot_that_was_written_off_or_not_sent(sent: bool) -> None:
    if sent:
        world = unknown(repeated_after=100)
        lists_at(world, 150, 210)
    else:
        world = World()
        world.record(1)
    before = world.states()
    world.lists(listed("i-1", terminated=True))
    assert world.states() == before
    assert world.machine("c0").placement.provider_id is None


def test_before_a_repeat_only_listings_after_ten_minutes_count() -> None:
    assert lists_at(unknown(), 100, 200, 599, 600, 601, 660) == ["requested"] * 6
    assert lists_at(unknown(), 600.5, 660.4, 660.5) == ["requested", "requested", "failed"]


def test_after_a_repeat_two_listings_a_minute_apart_write_the_slot_off() -> None:
    assert lists_at(unknown(repeated_after=100), 100) == ["requested"]
    assert lists_at(unknown(repeated_after=100), 101, 160.9) == ["requested", "requested"]
    assert lists_at(unknown(repeated_after=100), 101, 161) == ["requested", "failed"]
    assert lists_at(unknown(repeated_after=100), 159, 161, 218) == ["requested"] * 3
    assert lists_at(unknown(repeated_after=100), 159, 161, 219)[-1] == "failed"


def test_a_further_repeat_starts_the_count_again() -> None:
    world = unknown(repeated_after=100)
    lists_at(world, 150)
    world.now = START + 180
    world.do(e.LaunchRequestSent, LaunchRequestId("c"))
    world.do(e.LaunchOutcomeUnknown, LaunchRequestId("c"), "timed out")
    assert lists_at(world, 215, 250, 275) == ["requested", "requested", "failed"]


def test_incomplete_listings_write_no_slot_off() -> None:
    world = unknown(repeated_after=100)
    assert lists_at(world, 200, 300, 400, complete=False) == ["requested"] * 3
    assert world.call().full_listings == 0


def test_listings_of_another_provider_write_no_slot_off() -> None:
    world = unknown(repeated_after=100)
    for moment in (200.0, 300.0):
        world.ledger.apply(e.MachinesListed(START + moment, "west", START + moment, True, ()))  # type: ignore[arg-type]
    assert world.machine("c0").state is MachineState.REQUESTED


def test_listings_do_not_count_for_a_launch_request_in_flight() -> None:
    world = World()
    world.send(1)
    lists_at(world, 700, 800, 900)
    assert (world.call().state, world.call().full_listings) == (LaunchRequestState.SENT, 0)
    assert world.machine("c0").state is MachineState.REQUESTED


def test_writing_slots_off_settles_the_launch_request_and_puts_its_option_on_hold() -> None:
    world = unknown(2, repeated_after=100)
    world.now = START + 150
    world.lists(listed("i-1"))
    world.now = START + 210
    world.lists(listed("i-1"))
    assert world.states() == {"c0": "launched", "c1": "failed"}
    lost = world.machine("c1")
    assert (lost.failure, lost.reason) == (
        FailureClass.UNKNOWN,
        "no answer, and no listing shows it",
    )
    assert (world.call().state, world.call().settled_at) == (
        LaunchRequestState.SETTLED,
        START + 210,
    )
    assert world.state.cooldowns["option:gpu/0"] == Cooldown(
        "option:gpu/0", START + 240, 1, "timed out", error="NoAnswer"
    )
    assert world.ledger.take_changes().history[-1].detail == "1 of 2 slots: timed out"
    assert world.fleet().usage.machines == 1


def test_the_next_complete_listing_settles_a_launch_request_whose_machines_were_all_found() -> None:
    world = unknown(repeated_after=100)
    world.now = START + 150
    world.lists(listed("i-1"))
    assert (world.call().state, world.states()) == (LaunchRequestState.SETTLED, {"c0": "launched"})
    assert world.state.cooldowns.get("option:gpu/0") is None
    assert world.ledger.take_changes().history[-1].detail == "0 of 1 slot"


def test_a_machine_that_is_listed_late_fills_its_written_off_slot() -> None:
    world = unknown(repeated_after=100)
    lists_at(world, 150, 210)
    assert world.fleet().usage.machines == 0
    world.now = START + 250
    world.lists(listed("i-1"))
    machine = world.machine("c0")
    assert (machine.state, machine.placement.provider_id, machine.failure) == (
        MachineState.LAUNCHED,
        "i-1",
        None,
    )
    assert world.fleet().usage.machines == 1


def test_a_late_answer_fills_written_off_slots() -> None:
    world = unknown(repeated_after=100)
    lists_at(world, 150, 210)
    world.answer("c", "i-1")
    assert world.states() == {"c0": "launched"}


def test_a_late_answer_about_bound_machines_changes_nothing() -> None:
    world = unknown(2)
    world.lists(listed("i-2"))
    world.do(e.LaunchRequestSent, LaunchRequestId("c"))
    world.answer("c", "i-1", "i-2")
    assert [world.machine(f"c{n}").placement.provider_id for n in range(2)] == ["i-2", "i-1"]
    assert world.call().failure is None


def test_a_slot_that_the_provider_refused_is_not_filled_later() -> None:
    world = World()
    world.send(1)
    world.answer("c")
    world.lists(listed("i-1"))
    assert world.machine("c0").state is MachineState.FAILED
    assert world.machine("x-i-1").state is MachineState.FAILED


def test_a_written_off_slot_is_remembered_for_a_day() -> None:
    world = unknown(repeated_after=100)
    lists_at(world, 150, 210)
    world.after(86_000)
    world.lists(listed("i-1"))
    assert world.states() == {"c0": "launched"}


@pytest.mark.parametrize("extra", [1, 2])
def test_a_machine_beyond_its_launch_requests_slots_is_surplus(extra: int) -> None:
    world = World()
    world.launch(1)
    world.lists(world.listed("c0"), *(listed(f"i-{n}") for n in range(extra)))
    for number in range(extra):
        surplus = world.machine(f"x-i-{number}")
        assert (surplus.state, surplus.slot, surplus.due) == (MachineState.FAILED, -1, world.now)
        assert (surplus.work.may_run_job, bool(surplus.work.unverified)) == (False, False)
        assert surplus.reason == "its launch request has no slot for it"
    assert world.fleet().usage.machines == 1 + extra
    assert {end.machine for end in world.intents(Terminate)} == {f"x-i-{n}" for n in range(extra)}


def test_the_history_shows_each_step_of_a_launch_request() -> None:
    world = World()
    world.send(2)
    world.do(e.LaunchOutcomeUnknown, LaunchRequestId("c"), "timed out")
    world.do(e.LaunchRequestSent, LaunchRequestId("c"))
    world.answer("c", "i-1")
    rows = [
        (r.event, r.detail)
        for r in world.ledger.take_changes().history
        if r.kind == "launch_request"
    ]
    assert rows == [
        ("recorded", f"2 x gpu {WHY}"),
        ("sent", "attempt 1"),
        ("unknown", "timed out"),
        ("sent", "attempt 2"),
        (
            "answered",
            "1 of 2: the provider launched fewer machines and gave no reason",
        ),
    ]
