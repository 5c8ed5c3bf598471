"""Machines that operators took out of service: drained ones are terminated, quarantined ones are kept.

Neither counts as supply, so that jobs get other machines.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from autoscaler.model.cooldowns import Cooldown
from autoscaler.model.fleet import Fleet
from autoscaler.model.identifiers import MachineId
from autoscaler.model.machines.machine import Machine, MachineState, TerminationReason
from autoscaler.model.operators import (
    HoldKind,
    HoldTarget,
    TargetKind,
    drain_of,
    held,
    quarantine_of,
)
from autoscaler.model.plan import DeregisterRunner, Terminate

_BEFORE_ASSIGNMENT = (MachineState.LAUNCHED, MachineState.BOOTED, MachineState.READY)


@dataclass(slots=True)
class OutOfService:
    """`machines` are no supply. `deregistrations` are of runners that their drained machines never got."""

    machines: set[MachineId] = field(default_factory=set)
    terminations: list[Terminate] = field(default_factory=list)
    deregistrations: list[DeregisterRunner] = field(default_factory=list)


def out_of_service(fleet: Fleet) -> OutOfService:
    """Return what follows from the operators' holds. O(1) without one, else O(machines without a job)."""
    found = OutOfService()
    if not fleet.operator_holds:
        return found
    for machine in _concerned(fleet):
        if machine.id in found.machines or machine.state not in _BEFORE_ASSIGNMENT:
            continue
        found.machines.add(machine.id)
        drained = _drain(fleet, machine)
        # A machine from before the start may have been assigned without a record: see `StartEvidence`.
        if drained is not None and fleet.evidence.proves_unused(machine):
            found.terminations.append(
                Terminate(machine.id, TerminationReason.DRAINED, drained.reason)
            )
    for runners in fleet.deregistrable.values():
        for runner in runners.values():
            machine = fleet.machines[runner.machine]
            drained = _drain(fleet, machine)
            if drained is not None and runner.named_at >= fleet.started_at:
                found.machines.add(machine.id)
                found.deregistrations.append(DeregisterRunner(runner.name, drained.reason))
    return found


def _drain(fleet: Fleet, machine: Machine) -> Cooldown | None:
    """Return the hold that drains a machine. A quarantine keeps the machine although it is drained."""
    if quarantine_of(fleet.operator_holds, machine.id) is not None:
        return None
    return drain_of(fleet.operator_holds, machine.id, machine.sku, machine.provider)


def _concerned(fleet: Fleet) -> Iterator[Machine]:
    for kind, target, _ in held(fleet.operator_holds):
        if target.kind is TargetKind.MACHINE:
            machine = fleet.machines.get(MachineId(target.name))
            if machine is not None:
                yield machine
        elif kind is HoldKind.DRAINED:
            yield from _of_group(fleet, target)


def _of_group(fleet: Fleet, target: HoldTarget) -> Iterator[Machine]:
    """Yield the machines of a SKU or a provider that have no assignment."""
    for sku, state in sorted(fleet.by_state):
        if state not in _BEFORE_ASSIGNMENT:
            continue
        if target.kind is TargetKind.SKU and sku != target.name:
            continue
        for machine in fleet.machines_in(sku, state):
            if target.kind is TargetKind.SKU or machine.provider == target.name:
                yield machine
