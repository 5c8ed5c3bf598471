"""The rows of what operators hold: kept over a restart, noted in the history, and ended with the machine."""

from autoscaler.model import events as e
from autoscaler.model.identifiers import MachineId
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.machines.machine import MachineState, TerminationReason
from autoscaler.model.operators import (
    NO_END,
    WHOLE_FLEET,
    HoldKind,
    held,
    hold_key,
    is_operator_hold,
    machine_target,
    parse_hold_key,
    quarantine_of,
    sku_target,
)
from tests.ledger.builders import ALICE, GPU, World, failure

C0 = MachineId("c0")


def test_a_hold_survives_a_restart_and_its_end_does_too() -> None:
    world = World()
    world.do(e.HeldByOperator, HoldKind.PAUSED, WHOLE_FLEET, ALICE)
    world.restart(100_000.0)
    ((kind, target, row),) = held(world.fleet().operator_holds)
    assert (kind, target, row.until) == (HoldKind.PAUSED, WHOLE_FLEET, NO_END)
    world.do(e.ResumedByOperator, WHOLE_FLEET, ALICE)
    world.restart(1.0)
    assert world.fleet().operator_holds == {}


def test_the_history_names_who_held_and_resumed_what() -> None:
    world = World()
    world.make_ready(1)
    world.ledger.take_changes()
    world.do(e.HeldByOperator, HoldKind.DRAINED, sku_target(GPU), ALICE)
    world.do(e.HeldByOperator, HoldKind.QUARANTINED, machine_target(C0), ALICE)
    world.do(e.ResumedByOperator, sku_target(GPU), ALICE)
    rows = [(r.kind, r.record, r.event, r.detail) for r in world.ledger.take_changes().history]
    assert rows == [
        ("sku", "gpu", "drained", "by alice"),
        ("machine", "c0", "quarantined", "by alice"),
        ("sku", "gpu", "resumed", "by alice"),
    ]


def test_a_quarantine_ends_with_the_lifetime_of_the_sku_and_with_the_machine() -> None:
    world = World()
    world.make_ready(1)
    world.do(e.HeldByOperator, HoldKind.QUARANTINED, machine_target(C0), ALICE)
    row = quarantine_of(world.state.operator_holds, C0)
    assert row is not None
    assert row.until == world.machine("c0").due == world.now + 86_400.0
    world.do(e.TerminationRequested, C0, TerminationReason.OPERATOR, "why")
    world.do(e.TerminationAnswered, C0)
    world.lists(world.listed("c0", terminated=True))
    assert world.machine("c0").occupies is False
    assert world.state.operator_holds == {}


def test_a_drain_of_a_lost_machine_ends() -> None:
    world = World()
    world.make_ready(1)
    world.do(e.HeldByOperator, HoldKind.DRAINED, machine_target(C0), ALICE)
    for _ in range(2):
        world.after(61.0).lists()
    assert world.machine("c0").state is MachineState.LOST
    assert world.state.operator_holds == {}


def test_a_drain_of_a_slot_that_was_not_filled_ends() -> None:
    world = World()
    world.send(1)
    world.do(e.HeldByOperator, HoldKind.DRAINED, machine_target(C0), ALICE)
    world.answer("c", failures=[failure(FailureClass.CAPACITY)])
    assert not world.machine("c0").occupies
    assert world.state.operator_holds == {}


def test_the_start_drops_holds_of_machines_that_are_gone() -> None:
    world = World()
    world.make_ready(1)
    world.do(e.HeldByOperator, HoldKind.DRAINED, machine_target(C0), ALICE)
    world.do(e.HeldByOperator, HoldKind.DRAINED, machine_target(MachineId("gone")), ALICE)
    world.do(e.HeldByOperator, HoldKind.DRAINED, sku_target(GPU), ALICE)
    world.restart(1.0)
    assert {target for _, target, _ in held(world.state.operator_holds)} == {
        machine_target(C0),
        sku_target(GPU),
    }


def test_keys_are_read_back_as_they_were_written() -> None:
    for kind in HoldKind:
        for target in (WHOLE_FLEET, sku_target(GPU), machine_target(C0)):
            assert parse_hold_key(hold_key(kind, target)) == (kind, target)
            assert is_operator_hold(hold_key(kind, target))
    assert not is_operator_hold("offering:east/g5")
