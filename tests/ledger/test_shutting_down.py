"""Machines that shut down without a request of the controller."""

from dataclasses import replace

import pytest

from autoscaler.model import events as e
from autoscaler.model.cooldowns import active_cooldown, offering_key
from autoscaler.model.machines.due import TERMINATE_AGAIN
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.machines.interruptions import NoticeKind
from autoscaler.model.machines.machine import MachineState, TerminationReason
from autoscaler.model.plan import Assign, Launch, Terminate
from tests.ledger.builders import World
from tests.planner.fleets import EAST

SOLD = offering_key("east/g5.xlarge/a/on-demand")
CAPACITY, QUOTA, UNKNOWN = FailureClass.CAPACITY, FailureClass.QUOTA, FailureClass.UNKNOWN


def shows_leaving(
    world: World, machine: str, reason: str = "a: b", failure: FailureClass | None = None
) -> None:
    """Apply a listing that shows the machine in `shutting-down`, `stopping` or `stopped`."""
    shown = replace(world.listed(machine), leaving=True, reason=reason, failure=failure)
    world.lists(shown, complete=False)


@pytest.mark.case(
    "a state change has no reason: the controller reads it while the machine goes down, so that "
    "its failure has a class",
    topic="EC2's machines",
    source="EC2: StateReason",
)
@pytest.mark.parametrize("state", [MachineState.LAUNCHED, MachineState.BOOTED])
@pytest.mark.parametrize("failure", [QUOTA, CAPACITY, None])
def test_a_machine_that_shuts_down_before_ready_fails_for_the_listed_reason(
    state: MachineState, failure: FailureClass | None
) -> None:
    world = World()
    world.launch(1)
    if state is MachineState.BOOTED:
        world.boot("c0")
    shows_leaving(world, "c0", "Client.Words: more", failure)
    machine = world.machine("c0")
    assert (machine.state, machine.failure) == (MachineState.TERMINATING, failure or UNKNOWN)
    assert (machine.reason, machine.termination.reason) == (
        "Client.Words: more",
        TerminationReason.FAILED,
    )
    assert (active_cooldown(world.state.cooldowns, SOLD, world.now) is not None) is (
        failure is CAPACITY
    )
    world.now += 5.0
    shown = replace(world.listed("c0", terminated=True), reason="Client.Words: more")
    world.lists(replace(shown, failure=failure), complete=False)
    assert (machine.state, machine.failure) == (MachineState.TERMINATED, failure or UNKNOWN)


@pytest.mark.case(
    "a person or the machine itself stops or shuts down a ready machine: it gets no registration,"
    " and is terminated if it only stops",
    topic="EC2's machines",
    source="EC2: instance lifecycle",
)
def test_a_ready_machine_that_shuts_down_is_not_assigned_and_is_replaced() -> None:
    world = World()
    world.make_ready(1)
    world.queue(1)
    assert len(world.intents(Assign)) == 1
    shows_leaving(world, "c0")
    assert world.intents(Assign) == []
    assert len(world.intents(Launch)) == 1
    assert world.intents(Terminate) == []
    assert world.machine("c0").failure is None


def test_a_registration_not_fetched_by_a_machine_that_shuts_down_serves_no_job() -> None:
    world = World()
    runner = world.register(world.make_ready(1)[0])
    shows_leaving(world, "c0")
    assert world.runner(runner).state == "done"


@pytest.mark.case(
    "a person or the machine itself stops or shuts down a ready machine: it gets no registration,"
    " and is terminated if it only stops",
    topic="EC2's machines",
    source="EC2: instance lifecycle",
)
def test_a_machine_that_stays_in_shutting_down_is_terminated() -> None:
    """For example an instance whose shutdown behavior is `stop`."""
    world = World()
    world.launch(1)
    shows_leaving(world, "c0")
    world.after(TERMINATE_AGAIN.first - 1.0)
    assert world.intents(Terminate) == []
    world.after(1.0)
    assert [end.machine for end in world.intents(Terminate)] == ["c0"]


def test_a_spot_interruption_puts_the_offering_on_hold_at_once() -> None:
    world = World()
    world.make_ready(1)
    shows_leaving(world, "c0", "Server.SpotInstanceTermination: words", CAPACITY)
    assert world.machine("c0").interruption.kind is NoticeKind.SPOT_INTERRUPTION
    assert active_cooldown(world.state.cooldowns, SOLD, world.now) is not None
    assert world.intents(Terminate) == []


def test_an_assigned_machine_that_shuts_down_stays_assigned() -> None:
    world = World()
    world.assignment(world.make_ready(1)[0])
    shows_leaving(world, "c0")
    assert world.machine("c0").state is MachineState.ASSIGNED


def test_after_a_restart_only_a_machine_whose_agent_polled_counts_as_without_a_runner() -> None:
    """A restored store may be older than the machine's assignment."""
    world = World()
    world.make_ready(1)
    world.restart(60.0)
    shows_leaving(world, "c0")
    assert world.machine("c0").state is MachineState.READY


def test_a_terminating_machine_that_shuts_down_keeps_its_reason() -> None:
    world = World()
    world.make_ready(1)
    world.do(e.TerminationRequested, world.machine("c0").id, TerminationReason.IDLE, "idle")
    before = world.machine("c0").due
    shows_leaving(world, "c0")
    assert (world.machine("c0").termination.reason, world.machine("c0").due) == (
        TerminationReason.IDLE,
        before,
    )


def test_a_state_change_notice_alone_terminates_no_machine() -> None:
    world = World()
    world.make_ready(1)
    said = (
        world.machine("c0").placement.provider_id,
        NoticeKind.STATE_CHANGE,
        world.now,
        "stopping",
    )
    world.do(e.MachineNoticed, EAST, *said)
    assert (world.machine("c0").interruption.kind, world.intents(Terminate)) == (None, [])
