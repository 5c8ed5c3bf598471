"""What happens next after an operator paused, drained, quarantined or resumed something, in sentences."""

from datetime import UTC, datetime

from autoscaler.model.fleet import Fleet
from autoscaler.model.identifiers import Instant, MachineId
from autoscaler.model.machines.machine import BOOTING_STATES, Machine, MachineState
from autoscaler.model.operators import HoldKind, HoldTarget, TargetKind
from autoscaler.model.wording import counted

_WITHOUT_JOB = (*BOOTING_STATES, MachineState.READY)


def after_hold(fleet: Fleet, kind: HoldKind, target: HoldTarget, until: Instant) -> str:
    """Return what follows from a hold that is in force. O(machines) for a provider."""
    ends = f"`autoscaler resume {target}` ends this"
    if kind is HoldKind.PAUSED:
        idle = _count(fleet, target, _WITHOUT_JOB)
        jobs = _waiting(fleet, target)
        return (
            f"{jobs} now. Jobs wait with the code paused, unless another launch option serves them. "
            f"Machines that boot or are ready still run jobs ({idle} now). {ends}"
        )
    if kind is HoldKind.QUARANTINED:
        end = datetime.fromtimestamp(until, UTC)
        return (
            f"it gets no job, and the controller keeps it until {end:%Y-%m-%d %H:%M}Z (the lifetime of its "
            f"SKU) or until `autoscaler terminate {target.name}`; {ends}"
        )
    if target.kind is TargetKind.MACHINE:
        return f"{_after_drain(fleet.machines[MachineId(target.name)])}; {ends}"
    idle, busy = (
        _count(fleet, target, states) for states in (_WITHOUT_JOB, (MachineState.ASSIGNED,))
    )
    return (
        f"terminating now: {counted(idle, 'machine')} without a job; after their jobs: {busy}; "
        f"none is launched there; {ends}"
    )


def after_resume(fleet: Fleet, target: HoldTarget) -> str:
    """Return what follows after the holds of a target ended. Others may still apply."""
    if target.kind is TargetKind.MACHINE:
        machine = fleet.machines[MachineId(target.name)]
        if machine.state is MachineState.TERMINATING or not machine.occupies:
            return f"it is {machine.state} already"
        if machine.state in (MachineState.FAILED, MachineState.EXITED):
            return f"it is {machine.state}, and is terminated"
        return "the controller uses it as before"
    return (
        "launches are allowed again, unless another hold, a limit or a failure stops them; "
        f"{_waiting(fleet, target)}. `autoscaler explain JOB|LABEL` says what a job waits for"
    )


def _after_drain(machine: Machine) -> str:
    if machine.state is MachineState.REQUESTED:
        return "it is terminated as soon as its provider has launched it"
    if machine.state in _WITHOUT_JOB:
        return "it has no job, and is terminated now"
    if machine.state is MachineState.ASSIGNED:
        return "it has a runner: it runs its one job to the end, and terminates then"
    return f"it is {machine.state} already"


def _waiting(fleet: Fleet, target: HoldTarget) -> str:
    count = sum(
        len(queue)
        for demand, queue in fleet.queues.items()
        if any(_concerns(fleet, target, name) for name in demand.skus)
    )
    return f"{counted(count, 'job') if count else 'no job'} wait{'' if count > 1 else 's'}"


def _concerns(fleet: Fleet, target: HoldTarget, name: str) -> bool:
    if target.kind is not TargetKind.PROVIDER:
        return target.kind is TargetKind.FLEET or name == target.name
    sku = next((sku for known, sku in fleet.catalogue.skus.items() if known == name), None)
    options = sku.launch_options if sku is not None else ()
    return any(option.provider == target.name for option in options)


def _count(fleet: Fleet, target: HoldTarget, states: tuple[MachineState, ...]) -> int:
    found = 0
    for (sku, state), machines in fleet.by_state.items():
        if state not in states:
            continue
        if target.kind is TargetKind.PROVIDER:
            found += sum(machine.provider == target.name for machine in machines.values())
        elif target.kind is TargetKind.FLEET or sku == target.name:
            found += len(machines)
    return found
