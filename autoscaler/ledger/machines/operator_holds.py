"""Applies what operators hold and resume: pauses, drains and quarantines."""

from datetime import UTC, datetime

from autoscaler.ledger.failures.failure_counts import end_hold
from autoscaler.ledger.records.state import LedgerState
from autoscaler.model.catalogue import DEFAULT_LIFETIME
from autoscaler.model.changes import HistoryRow
from autoscaler.model.cooldowns import Cooldown
from autoscaler.model.events import HeldByOperator, ResumedByOperator
from autoscaler.model.identifiers import Instant, MachineId
from autoscaler.model.machines.machine import Machine
from autoscaler.model.operators import (
    NO_END,
    HoldKind,
    HoldTarget,
    TargetKind,
    held,
    hold_key,
    machine_target,
)


def on_held_by_operator(state: LedgerState, event: HeldByOperator) -> None:
    """Set a hold. A quarantine ends after the `lifetime` of the machine's SKU."""
    until, machine = NO_END, _machine(state, event.target)
    if event.kind is HoldKind.QUARANTINED and machine is not None:
        sku = state.catalogue.skus.get(machine.sku)
        until = event.at + (sku.lifetime if sku is not None else DEFAULT_LIFETIME)
    since = datetime.fromtimestamp(event.at, UTC)
    reason = f"{event.kind} by {event.by} since {since:%Y-%m-%d %H:%M}Z"
    state.set_cooldown(Cooldown(hold_key(event.kind, event.target), until, 1, reason))
    _note(state, event.target, event.at, event.kind.value, f"by {event.by}")
    _look_again(state, machine)


def on_resumed_by_operator(state: LedgerState, event: ResumedByOperator) -> None:
    """End every hold of a target."""
    for kind in HoldKind:
        end_hold(state, hold_key(kind, event.target), event.at)
    _note(state, event.target, event.at, "resumed", f"by {event.by}")
    _look_again(state, _machine(state, event.target))


def end_holds_of(state: LedgerState, machine: MachineId, at: Instant) -> None:
    """End the holds of a machine that does not exist any more."""
    for kind in HoldKind:
        end_hold(state, hold_key(kind, machine_target(machine)), at)


def end_holds_of_unknown_machines(state: LedgerState, at: Instant) -> None:
    """End the holds of machines that are not in memory: no operator can resume them. O(holds)."""
    for _, target, _ in tuple(held(state.operator_holds)):
        if target.kind is TargetKind.MACHINE and _machine(state, target) is None:
            end_holds_of(state, MachineId(target.name), at)


def _machine(state: LedgerState, target: HoldTarget) -> Machine | None:
    if target.kind is not TargetKind.MACHINE:
        return None
    return state.machines.get(MachineId(target.name))


def _note(state: LedgerState, target: HoldTarget, at: Instant, event: str, detail: str) -> None:
    state.note_row(HistoryRow(at, target.kind.value, target.name, event, detail))


def _look_again(state: LedgerState, machine: Machine | None) -> None:
    if machine is not None:
        with state.changing(machine):
            pass  # computes when it is due
