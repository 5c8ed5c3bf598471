"""Machine records: what machines say, what is asked of their provider, and when to look again.

It never decides to end a machine; `due` only says when the planner must look at it.
"""

from autoscaler.ledger.cooldowns import note_early_exit, note_failed_boot, note_good_boot
from autoscaler.ledger.holds import HANDED_OUT_WITHIN
from autoscaler.ledger.state import LedgerState
from autoscaler.model.catalogue import DEFAULT_LIFETIME, Deadlines
from autoscaler.model.events import (
    EndAnswered,
    EndRequested,
    ExaminationRequested,
    MachineExamined,
    MachineExited,
    MachineGateReported,
    MachineReportedStage,
    MachineSaidHello,
    MachineSeen,
)
from autoscaler.model.failures import FailureClass
from autoscaler.model.identifiers import Instant, Seconds
from autoscaler.model.interruptions import NoticeKind
from autoscaler.model.machines import (
    MACHINE_TRANSITIONS,
    EndGround,
    Machine,
    MachineState,
)
from autoscaler.model.runners import IDLE_STATES, RUNNER_TRANSITIONS, RunnerState

SILENCE: Seconds = 900.0
"""A granted machine's agent that is silent for this long has GitHub asked about its work."""

POWER_OFF_TIME: Seconds = 120.0
"""How long a machine that reported its exit has to power itself off."""

END_AGAIN: Seconds = 120.0
"""How long after asking for an end it is asked again, doubling to ten minutes."""

_S = MachineState
_LATE = {_S.LAUNCHED: FailureClass.BOOT_DEADLINE, _S.BOOTED: FailureClass.GATE}


def on_hello(state: LedgerState, event: MachineSaidHello) -> None:
    """A machine proved itself; its nonce replaces the one before."""
    machine = state.machines[event.machine]
    if machine.state in (_S.LAUNCHED, _S.PARKED):
        move(state, machine, _S.BOOTED, event.at)
    with state.changing(machine):
        machine.nonce_hash = event.nonce_hash
        machine.booted_at = machine.booted_at or event.at
        machine.confirmed = True
        machine.last_seen = event.at
        machine.due = due(state, machine)
    state.note(machine, event.at, "hello")


def on_stage(state: LedgerState, event: MachineReportedStage) -> None:
    """A machine's boot has come this far."""
    machine = state.machines[event.machine]
    with state.changing(machine):
        machine.stage = event.stage
    see(state, machine, event.at)
    state.note(machine, event.at, "stage", event.stage)


def on_gate(state: LedgerState, event: MachineGateReported) -> None:
    """A machine's checks ended: it parks, or it has failed and is to be ended."""
    machine = state.machines[event.machine]
    ungranted = machine.state is _S.GRANTED and not machine.handed_over
    if not event.passed and (machine.state is _S.BOOTED or ungranted):
        note_failed_boot(state, machine, event.at, f"gate: {event.detail}")
        fail(state, machine, FailureClass.GATE, event.at, event.detail)
    elif event.passed and machine.state is _S.BOOTED:
        if machine.parked_at is None:
            _learn_boot_time(state, machine, event.at)
        note_good_boot(state, machine, event.at)
        move(state, machine, _S.PARKED, event.at, event.detail)
        with state.changing(machine):
            machine.parked_at = machine.parked_at or event.at
        see(state, machine, event.at)


def on_seen(state: LedgerState, event: MachineSeen) -> None:
    """An authenticated word from a machine."""
    machine = state.machines.get(event.machine)
    if machine is not None:
        if event.polled:
            with state.changing(machine):
                machine.confirmed = True
        see(state, machine, event.at)


def on_exited(state: LedgerState, event: MachineExited) -> None:
    """A machine says that its runner has left; it has two minutes to power itself off."""
    machine = state.machines[event.machine]
    if _S.EXITED in MACHINE_TRANSITIONS[machine.state]:
        if _left_at_once(state, machine, event.at):
            note_early_exit(state, machine, event.at, event.detail)
        close_its_runner(state, machine, event.at, event.detail)
        move(state, machine, _S.EXITED, event.at, event.detail)


def on_end_requested(state: LedgerState, event: EndRequested) -> None:
    """The provider is about to be asked to end a machine (again, where it is ending already)."""
    machine = state.machines[event.machine]
    close_its_runner(state, machine, event.at, event.reason)
    if machine.state is not _S.ENDING:
        failure = _failure_to_become_ready(machine, event.ground)
        move(state, machine, _S.ENDING, event.at, f"{event.ground}: {event.reason}")
        with state.changing(machine):
            machine.ground = event.ground
            machine.failure = failure or machine.failure
        if failure is not None and machine.parked_at is None:
            note_failed_boot(state, machine, event.at, event.reason)
    with state.changing(machine):
        machine.due = event.at + min(END_AGAIN * 2.0 ** min(machine.end_attempts, 8), 600.0)
        machine.end_attempts += 1


def on_end_answered(state: LedgerState, event: EndAnswered) -> None:
    """The provider took it, or said why not; either way the machine is looked at again."""
    machine = state.machines.get(event.machine)
    if machine is not None and event.error:
        state.note(machine, event.at, "end_refused", event.error)


def on_examination_requested(state: LedgerState, event: ExaminationRequested) -> None:
    """GitHub is asked about a silent machine; the next look is a quarter of an hour later."""
    machine = state.machines[event.machine]
    with state.changing(machine):
        machine.due = min(event.at + SILENCE, lifetime_end(state, machine))


def on_examined(state: LedgerState, event: MachineExamined) -> None:
    """Two answers a quarter of an hour apart that its work is over are proof; one is not."""
    machine = state.machines.get(event.machine)
    if machine is None or machine.state is not _S.GRANTED:
        return
    with state.changing(machine):
        if not event.finished:
            machine.finished_at, machine.finished_reads = None, 0
        elif machine.finished_at is None:
            machine.finished_at, machine.finished_reads = event.at, 1
            machine.due = min(event.at + SILENCE, lifetime_end(state, machine))
        elif event.at - machine.finished_at >= SILENCE:
            machine.finished_reads = 2
            machine.due = event.at
    state.note(machine, event.at, "examined", event.detail)


def move(
    state: LedgerState, machine: Machine, to: MachineState, at: Instant, detail: str = ""
) -> None:
    """Bring a machine into another state. Raises ValueError where the table has no such way."""
    if to not in MACHINE_TRANSITIONS[machine.state]:
        message = f"machine {machine.id}: no way from {machine.state} to {to}"
        raise ValueError(message)
    with state.changing(machine):
        machine.state, machine.since, machine.absence = to, at, 0.0
        if to in (_S.GONE, _S.LOST):
            machine.ended_at = at
        machine.due = due(state, machine)
        if detail:
            machine.reason = detail[:500]
    state.note(machine, at, to, detail)


def fail(
    state: LedgerState, machine: Machine, failure: FailureClass, at: Instant, reason: str
) -> None:
    """A machine is of no use: a slot is over at once, one that exists is to be ended."""
    close_its_runner(state, machine, at, reason)
    with state.changing(machine):
        machine.failure = failure
    move(state, machine, _S.FAILED, at, reason)


def see(state: LedgerState, machine: Machine, at: Instant) -> None:
    """The machine spoke with its nonce just now."""
    with state.changing(machine):
        machine.last_seen = at
        machine.finished_at, machine.finished_reads = None, 0
        if machine.state in (_S.PARKED, _S.GRANTED):
            machine.absence = 0.0
        machine.due = due(state, machine)


def close_its_runner(state: LedgerState, machine: Machine, at: Instant, reason: str) -> None:
    """The machine leaves, and its registration with it."""
    runner = state.runners.get(machine.runner) if machine.runner is not None else None
    if runner is None or RunnerState.DONE not in RUNNER_TRANSITIONS[runner.state]:
        return
    with state.changing(runner):
        runner.state, runner.since, runner.reason = RunnerState.DONE, at, reason[:500]
    state.note(runner, at, RunnerState.DONE, reason)


def _failure_to_become_ready(machine: Machine, ground: EndGround) -> FailureClass | None:
    """What kept a machine from parking that is ended on this ground, if anything of its own did."""
    if machine.state not in _LATE:
        return None
    if ground is EndGround.INTERRUPTED and machine.interruption is NoticeKind.STATE_CHANGE:
        return FailureClass.UNKNOWN  # nobody took it: it ended by itself
    return _LATE[machine.state] if ground is EndGround.DEADLINE else None


def _left_at_once(state: LedgerState, machine: Machine, at: Instant) -> bool:
    """Whether its runner never had a job, and left before GitHub could be blamed for that."""
    runner = state.runners.get(machine.runner) if machine.runner is not None else None
    if runner is None or runner.job is not None or runner.state not in IDLE_STATES:
        return False
    acknowledged = runner.acknowledged_at
    return acknowledged is None or at - acknowledged < HANDED_OUT_WITHIN


def lifetime_end(state: LedgerState, machine: Machine) -> Instant:
    """When a granted machine's lifetime is over, counted from the grant."""
    sku = state.catalogue.skus.get(machine.sku)
    start = machine.granted_at if machine.granted_at is not None else machine.since
    return start + (sku or _FALLBACK).lifetime


def due(state: LedgerState, machine: Machine) -> Instant | None:
    """When the planner must look at this machine even if nothing happens."""
    if machine.interruption is not None and machine.is_unused(state.started_at):
        return machine.since
    deadlines = (state.catalogue.skus.get(machine.sku) or _FALLBACK).deadlines
    match machine.state:
        case _S.LAUNCHED:
            return machine.since + _extended(deadlines.boot, machine)
        case _S.BOOTED:
            return machine.since + _extended(deadlines.gate, machine)
        case _S.PARKED:
            return _silent_while_parked(state, machine, deadlines.parked_silence)
        case _S.GRANTED if not machine.handed_over:
            return _silent_while_parked(state, machine, deadlines.parked_silence)
        case _S.GRANTED:
            silent = _heard_at(machine) + _extended(SILENCE, machine)
            return min(silent, lifetime_end(state, machine))
        case _S.EXITED:
            return machine.since + _extended(POWER_OFF_TIME, machine)
        case _S.FAILED:
            return machine.since if machine.provider_id is not None else None
        case _S.ENDING:
            return machine.due
    return None


def _silent_while_parked(state: LedgerState, machine: Machine, patience: Seconds) -> Instant:
    due_at = _heard_at(machine) + _extended(patience, machine)
    if machine.confirmed:
        return due_at
    # After a start it has its time to speak again, however long nobody was here to listen.
    return max(due_at, state.started_at + patience)


def _heard_at(machine: Machine) -> Instant:
    return max(machine.last_seen or machine.since, machine.since)


def _extended(length: Seconds, machine: Machine) -> Seconds:
    # Our own downtime fails nobody's deadline, but a crash loop makes nothing immortal.
    return min(length + machine.absence, 3.0 * length)


def _learn_boot_time(state: LedgerState, machine: Machine, at: Instant) -> None:
    took = at - machine.created_at - machine.absence
    known = state.boot_seconds.get(machine.sku, took)
    state.boot_seconds[machine.sku] = known + 0.2 * (took - known)


class _Fallback:
    """A SKU that left the configuration keeps its machines under the default deadlines."""

    deadlines = Deadlines()
    lifetime: Seconds = DEFAULT_LIFETIME


_FALLBACK = _Fallback()
