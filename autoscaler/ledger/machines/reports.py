"""Applies events of machines: reports of agents, requests to terminate, and reads at GitHub."""

from autoscaler.ledger.failures.circuits import note_refused_image
from autoscaler.ledger.failures.cooldowns import note_early_exit, note_failed_boot, note_good_boot
from autoscaler.ledger.failures.host_failures import avoid_host
from autoscaler.ledger.job_holds import JOB_ASSIGNED_WITHIN, left_idle, remove_marks_of
from autoscaler.ledger.machines.interruptions import note_taken
from autoscaler.ledger.machines.states import close_its_runner, end, fail, move, see
from autoscaler.ledger.machines.unverified import polled_for_assignment
from autoscaler.ledger.records.state import LedgerState
from autoscaler.model.changes import HistoryRow, may_become
from autoscaler.model.events import (
    ConsoleRead,
    HealthChecksReported,
    MachineAttested,
    MachineExited,
    MachineReportedStage,
    MachineSeen,
    RunnerRead,
    RunnerReadRequested,
    TerminationAnswered,
    TerminationRequested,
)
from autoscaler.model.identifiers import Instant
from autoscaler.model.jobs.runners import IDLE_STATES
from autoscaler.model.machines.due import SILENCE, TERMINATE_AGAIN, TERMINATED_AFTER_JOB, is_silent
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.machines.machine import (
    ExitReason,
    Machine,
    MachineState,
    TerminationReason,
)

_S = MachineState
_LATE = {_S.LAUNCHED: FailureClass.BOOT_DEADLINE, _S.BOOTED: FailureClass.HEALTH_CHECK}
"""The failure of a machine that missed a deadline before it became ready."""


def on_attestation(state: LedgerState, event: MachineAttested) -> None:
    """Mark the machine as booted, and replace its nonce."""
    machine = state.machines[event.machine]
    if machine.state in (_S.LAUNCHED, _S.READY):
        move(state, machine, _S.BOOTED, event.at)
    with state.changing(machine):
        machine.nonce_hash = event.nonce_hash
        machine.placement.host = event.host or machine.placement.host
        if machine.work.last_seen is None:
            machine.progress.stage = ""  # what the machine waited for until now
        machine.progress.booted_at = machine.progress.booted_at or event.at
        machine.work.agent_seen = True
        machine.work.last_seen = event.at
    state.note(machine, event.at, "attested")


def on_stage(state: LedgerState, event: MachineReportedStage) -> None:
    """Store the stage of the machine's boot."""
    machine = state.machines[event.machine]
    see(state, machine, event.at, stage=event.stage)
    state.note(machine, event.at, "stage", event.stage)


def on_health_checks(state: LedgerState, event: HealthChecksReported) -> None:
    """Mark the machine as ready, or as failed if its health checks failed."""
    machine = state.machines[event.machine]
    if event.runner_version:
        with state.changing(machine):
            machine.progress.runner_version = event.runner_version
    unassigned = machine.state is _S.ASSIGNED and not machine.work.may_run_job
    if not event.passed and (machine.state is _S.BOOTED or unassigned):
        failure, reason = FailureClass.HEALTH_CHECK, f"health checks: {event.detail}"
        note_failed_boot(state, machine, failure, event.at, reason)
        avoid_host(state, machine, event.at, event.detail)
        fail(state, machine, failure, event.at, event.detail)
    elif event.passed and machine.state is _S.BOOTED:
        if machine.progress.ready_at is None:
            _learn_boot_time(state, machine, event.at)
        note_good_boot(state, machine, event.at)
        passed = f"checks passed: {event.detail}" if event.detail else ""
        move(state, machine, _S.READY, event.at, passed)
        see(state, machine, event.at)


def on_seen(state: LedgerState, event: MachineSeen) -> None:
    """Store that the agent sent an authenticated request."""
    machine = state.machines.get(event.machine)
    if machine is not None:
        see(state, machine, event.at, polled=event.polled)
        if event.polled:
            polled_for_assignment(state, machine, event.at)


def on_exited(state: LedgerState, event: MachineExited) -> None:
    """Mark the machine as exited. It has two minutes to power itself off."""
    machine = state.machines[event.machine]
    left_idle(state, machine, event.at)
    if event.reason is ExitReason.NOT_CONNECTED:
        remove_marks_of(state, machine, event.at)
    if may_become(machine, _S.EXITED):
        with state.changing(machine):
            machine.work.exit_reason = event.reason
        if event.reason is ExitReason.VERSION_DEPRECATED and _had_no_job(state, machine):
            note_refused_image(state, machine, event.at, event.detail)
        elif event.reason is not ExitReason.STOPPED and _is_unfit(state, machine, event):
            note_early_exit(state, machine, event.at, event.detail)
        close_its_runner(state, machine, event.at, event.detail)
        move(state, machine, _S.EXITED, event.at, event.detail)
        if event.reason is ExitReason.STOPPED:
            note_taken(state, machine, event.at)


def on_termination_requested(state: LedgerState, event: TerminationRequested) -> None:
    """Mark the machine as terminating, or count a repeated request to terminate it."""
    machine = state.machines[event.machine]
    close_its_runner(state, machine, event.at, event.reason)
    if machine.state is not _S.TERMINATING:
        late = event.reason_code is TerminationReason.DEADLINE
        failure = _LATE.get(machine.state) if late else None
        if not end(state, machine, _S.TERMINATING, event.reason_code, event.at, event.reason):
            return
        with state.changing(machine):
            machine.failure = failure or machine.failure
        if failure is not None and machine.progress.ready_at is None:
            note_failed_boot(state, machine, failure, event.at, event.reason)
    with state.changing(machine):
        machine.due = event.at + TERMINATE_AGAIN.delay(machine.termination.attempts)
        machine.termination.attempts += 1


def on_termination_answered(state: LedgerState, event: TerminationAnswered) -> None:
    """Store whether the provider accepted the request. The request is repeated either way."""
    machine = state.machines.get(event.machine)
    if machine is None:
        return
    if event.error:
        state.note(machine, event.at, "termination_refused", event.error)
    error = event.error[:500]
    if machine.state is _S.TERMINATING and error != machine.termination.error:
        with state.changing(machine):
            machine.termination.error = error
    if machine.does_not_terminate:
        attempts = f"{machine.termination.attempts} requests to terminate it"
        state.note(machine, event.at, "not_terminated", f"{attempts}: {machine.provider_words}")


def on_runner_read_requested(state: LedgerState, event: RunnerReadRequested) -> None:
    """Schedule the next look at a silent machine, 15 minutes later."""
    machine = state.machines[event.machine]
    with state.changing(machine):
        machine.work.read_at = event.at


def on_runner_read(state: LedgerState, event: RunnerRead) -> None:
    """Count an answer that the machine's work is over. Two answers, 15 minutes apart, are proof.

    A request of the agent starts this proof again, but not the proof that the registration is deleted.
    """
    machine = state.machines.get(event.machine)
    if machine is None or machine.state is not _S.ASSIGNED:
        return
    is_taken = machine.interruption.taken_at is not None
    if event.finished and is_silent(machine, event.at) and not is_taken:
        note_taken(state, machine, event.at)
    with state.changing(machine):
        if not event.finished:
            machine.work.finished_at, machine.work.finished_reads = None, 0
        elif machine.work.finished_at is None:
            machine.work.finished_at, machine.work.finished_reads = event.at, 1
        elif event.at - machine.work.finished_at >= SILENCE:
            machine.work.finished_reads = 2
        _note_unregistered(state, machine, event)
    state.note(machine, event.at, "runner_read", event.detail)


def _note_unregistered(state: LedgerState, machine: Machine, event: RunnerRead) -> None:
    """Decide to terminate a machine half an hour after its job, if its registration is deleted."""
    over_at = state.work_over_at(machine)
    machine.work.read_at = event.at
    if over_at is None or not (event.finished and event.unregistered):
        machine.work.unregistered_at = None
    elif machine.work.unregistered_at is None:
        machine.work.unregistered_at = event.at
    elif (
        event.at - machine.work.unregistered_at >= SILENCE
        and event.at - over_at >= TERMINATED_AFTER_JOB
    ):
        machine.termination.reason = TerminationReason.FINISHED


def on_console_read(state: LedgerState, event: ConsoleRead) -> None:
    """Add the console output to the machine's history."""
    state.note_row(HistoryRow(event.at, "machine", event.machine, "console", event.shown))


def _is_unfit(state: LedgerState, machine: Machine, event: MachineExited) -> bool:
    """Return True if a runner without a job exited before GitHub should have given it one, or cannot connect.

    A runner that cannot connect exits after minutes. Its registration may already be deleted by then.
    """
    runner = state.runner_of(machine)
    if runner is None or event.reason is ExitReason.NOT_CONNECTED:
        return runner is not None and runner.job is None
    started = runner.listening_at
    at_once = started is None or event.at - started < JOB_ASSIGNED_WITHIN
    return at_once and _had_no_job(state, machine)


def _had_no_job(state: LedgerState, machine: Machine) -> bool:
    """Return True if GitHub may still give the runner its first job. False for an ended registration."""
    runner = state.runner_of(machine)
    return runner is not None and runner.job is None and runner.state in IDLE_STATES


def _learn_boot_time(state: LedgerState, machine: Machine, at: Instant) -> None:
    took = at - machine.created_at - machine.absence
    known = state.boot_seconds.get(machine.sku, took)
    state.boot_seconds[machine.sku] = known + 0.2 * (took - known)
