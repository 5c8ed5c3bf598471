"""Changes the state of a machine, with its reason, and what depends on the state."""

from autoscaler.ledger.machines.operator_holds import end_holds_of
from autoscaler.ledger.records.state import LedgerState
from autoscaler.model.changes import may_become
from autoscaler.model.identifiers import Instant
from autoscaler.model.jobs.runners import RunnerState
from autoscaler.model.machines.due import TERMINATE_AGAIN
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.machines.interruptions import TAKES
from autoscaler.model.machines.machine import Machine, MachineState, TerminationReason

_S = MachineState


def leave(state: LedgerState, machine: Machine, at: Instant, reason: str) -> None:
    """Mark a machine as terminating that shuts down without a request of the controller.

    The controller requests its termination only if the machine still exists after `TERMINATE_AGAIN.first`.
    """
    code = found_reason(state, machine)
    close_its_runner(state, machine, at, reason)
    end(state, machine, _S.TERMINATING, code, at, reason)
    with state.changing(machine):
        machine.due = at + TERMINATE_AGAIN.first


def end(
    state: LedgerState,
    machine: Machine,
    to: MachineState,
    code: TerminationReason,
    at: Instant,
    reason: str,
) -> bool:
    """Move a machine towards its end. Return False if it cannot move there.

    `code` is its reason code unless it has been terminating: then the first reason remains.
    """
    is_first = machine.state is not _S.TERMINATING
    if not move(state, machine, to, at, reason, code if is_first else ""):
        return False
    if is_first:
        with state.changing(machine):
            machine.termination.reason = code
    return True


def found_reason(state: LedgerState, machine: Machine) -> TerminationReason:
    """Return why a machine ends that the controller does not terminate. Call it before its runner is closed."""
    if machine.state is _S.FAILED:
        return machine.termination.reason or TerminationReason.FAILED
    if machine.interruption.kind in TAKES:
        return TerminationReason.INTERRUPTED
    runner = state.runner_of(machine)
    over = runner is not None and runner.state is RunnerState.DONE
    if machine.state is _S.EXITED or (machine.state is _S.ASSIGNED and over):
        return TerminationReason.POWERED_OFF
    return TerminationReason.SHUT_DOWN


def move(
    state: LedgerState,
    machine: Machine,
    to: MachineState,
    at: Instant,
    detail: str = "",
    code: str = "",
) -> bool:
    """Change a machine's state. Return False if `MACHINE_TRANSITIONS` does not have this transition.

    `detail` and `code` are the reason in words and as a code.
    """
    with state.changing(machine):
        if not state.enter(machine, to):
            return False
        machine.since, machine.absence = at, 0.0
        if to is _S.READY:
            machine.progress.ready_at = machine.progress.ready_at or at
        if to in (_S.TERMINATED, _S.LOST):
            machine.progress.ended_at = at
        if detail:
            machine.reason = detail[:500]
    if not machine.occupies:
        end_holds_of(state, machine.id, at)
    state.note(machine, at, to, detail, code)
    return True


def fail(
    state: LedgerState, machine: Machine, failure: FailureClass, at: Instant, reason: str
) -> None:
    """Mark a machine or a slot as failed. A machine that exists becomes due for termination."""
    close_its_runner(state, machine, at, reason)
    with state.changing(machine):
        machine.failure = failure
    move(state, machine, _S.FAILED, at, reason, failure)


def see(
    state: LedgerState,
    machine: Machine,
    at: Instant,
    *,
    stage: str | None = None,
    polled: bool = False,
) -> None:
    """Store that the agent has just sent an authenticated request: the stage of its boot, or a poll."""
    with state.changing(machine):
        if stage is not None:
            machine.progress.stage = stage
        machine.work.agent_seen |= polled
        machine.work.last_seen = at
        machine.work.finished_at, machine.work.finished_reads = None, 0
        if machine.state in (_S.READY, _S.ASSIGNED):
            machine.absence = 0.0


def close_its_runner(state: LedgerState, machine: Machine, at: Instant, reason: str) -> None:
    """End the registration of a machine that exits or is terminated."""
    runner = state.runner_of(machine)
    if runner is None or not may_become(runner, RunnerState.DONE):
        return
    with state.changing(runner):
        state.enter(runner, RunnerState.DONE)
        runner.since, runner.reason = at, reason[:500]
    state.note(runner, at, RunnerState.DONE, reason)
