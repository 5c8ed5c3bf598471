"""A machine that does not terminate is reported from the third request on, with the provider's reason."""

from dataclasses import replace

import pytest

from autoscaler.ledger.machines.operator_requests import unverified
from autoscaler.model import events as e
from autoscaler.model.changes import HistoryRow
from autoscaler.model.identifiers import MachineId
from autoscaler.model.machines.machine import TerminationReason
from tests.ledger.builders import World

C0 = MachineId("c0")


def asked(world: World, times: int, error: str = "") -> list[HistoryRow]:
    """Repeat the termination of c0 so many times. Return the history's rows about the answers."""
    rows: list[HistoryRow] = []
    for _ in range(times):
        world.do(e.TerminationRequested, C0, TerminationReason.IDLE, "idle for 600 s")
        world.state.take_changes()
        world.do(e.TerminationAnswered, C0, error)
        rows += world.state.take_changes().history
        world.now += 300.0
    return [row for row in rows if row.event == "not_terminated"]


def shown(world: World, state: str = "running", reason: str = "", *, gone: bool = False) -> None:
    seen = replace(world.listed("c0", terminated=gone), state=state, reason=reason)
    world.lists(seen)


def reported(world: World) -> int:
    """Return how many machines the operator's list has; the metric shows the same number."""
    found = len(unverified(world.state))
    assert world.state.not_terminating == found
    return found


@pytest.mark.case(
    "EC2 accepts or refuses TerminateInstances again and again, and the machine still exists",
    topic="EC2's machines",
    source="EC2: TerminateInstances",
)
def test_a_machine_that_does_not_terminate_is_reported_from_the_third_request_on() -> None:
    world = World()
    world.make_ready(1)
    assert asked(world, 2) == []
    assert reported(world) == 0
    (row,) = asked(world, 1)
    assert row.detail.startswith("3 requests to terminate it: ")
    assert reported(world) == 1
    assert len(asked(world, 2)) == 2


def test_the_reported_reason_is_the_providers_refusal() -> None:
    world = World()
    world.make_ready(1)
    asked(world, 2)
    shown(world)
    (row,) = asked(world, 1, "OperationNotPermitted: it has termination protection")
    assert row.detail.endswith("OperationNotPermitted: it has termination protection")
    (entry,) = unverified(world.state)
    assert (entry.machine, entry.provider_id) == (C0, "i-c0")
    assert "OperationNotPermitted: it has termination protection" in entry.why
    assert entry.why.startswith("3 requests to terminate it (idle for 600 s)")
    assert "terminate it there" in entry.what_to_do


def test_the_reported_reason_is_the_listed_state_if_terminations_are_accepted() -> None:
    world = World()
    world.make_ready(1)
    asked(world, 2, "RequestLimitExceeded: later")
    shown(world, "shutting-down", "Client.UserInitiatedShutdown: User initiated shutdown")
    (row,) = asked(world, 1)
    words = "shutting-down, Client.UserInitiatedShutdown: User initiated shutdown"
    assert row.detail.endswith(words)
    shown(world)
    (entry,) = unverified(world.state)
    assert entry.why.endswith("says: running")


def test_the_listed_state_is_not_recorded_after_the_first_request() -> None:
    world = World()
    world.make_ready(1)
    asked(world, 1)
    shown(world)
    assert world.machine("c0").termination.provider_state == ""


def test_a_terminated_machine_is_no_longer_reported_as_not_terminated() -> None:
    world = World()
    world.make_ready(1)
    asked(world, 4)
    shown(world, "terminated", gone=True)
    assert reported(world) == 0
    world.do(e.TerminationAnswered, C0)
    assert reported(world) == 0


def test_long_reasons_of_the_provider_are_cut() -> None:
    world = World()
    world.make_ready(1)
    asked(world, 3, "x" * 5000)
    shown(world, "running", "y" * 5000)
    machine = world.machine("c0")
    assert (len(machine.termination.error), len(machine.termination.provider_state)) == (500, 500)
