"""Applies interruption notices: which machines a provider takes, and which of them it took from their runner.

An unused machine with a notice is due for termination, and its offering is put on hold. `reruns.py` decides
which jobs are rerun.
"""

from autoscaler.ledger.failures.failure_counts import count_failure
from autoscaler.ledger.machines.reruns import update_rerun
from autoscaler.ledger.records.state import LedgerState
from autoscaler.model.cooldowns import offering_key
from autoscaler.model.events import MachineNoticed
from autoscaler.model.identifiers import Instant
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.machines.interruptions import TAKES, NoticeKind
from autoscaler.model.machines.machine import ExitReason, Machine, MachineState, TerminationReason

_GRAVITY = {kind: rank for rank, kind in enumerate(NoticeKind)}
_SHORT = frozenset({NoticeKind.SPOT_INTERRUPTION, NoticeKind.REBALANCE_RECOMMENDATION})
"""These notices mean that capacity is short. Service of one host says nothing about other hosts."""

_LEAVING = frozenset({MachineState.EXITED, MachineState.TERMINATING, MachineState.FAILED})


def on_machine_noticed(state: LedgerState, event: MachineNoticed) -> None:
    """Mark the machine as interrupted. An unused machine becomes due for termination."""
    known = state.by_provider_id.get(event.provider_id)
    machine = state.machines[known] if known is not None else None
    if machine is None or machine.provider != event.provider:
        return
    gone = not machine.occupies or machine.state in _LEAVING
    if gone and not (is_unexplained(machine) and event.kind in TAKES):
        return
    if event.kind is NoticeKind.STATE_CHANGE:
        return  # no interruption: the provider's listing will show the reason
    note_interruption(state, machine, event.kind, event.means_at, event.at, event.detail)


def note_interruption(
    state: LedgerState,
    machine: Machine,
    kind: NoticeKind,
    means_at: Instant,
    at: Instant,
    detail: str = "",
) -> None:
    """Store an interruption notice. A repeated or less severe notice changes nothing."""
    before = machine.interruption.kind
    if before is not None and _GRAVITY[before] >= _GRAVITY[kind]:
        return
    with state.changing(machine):
        machine.interruption.kind, machine.interruption.at = kind, means_at
    state.note(machine, at, "interrupted", f"{kind}: {detail}" if detail else kind)
    if kind in _SHORT:
        request = state.launch_requests.get(machine.launch_request)
        offering = request.offering(machine.offering) if request is not None else None
        key = offering_key(offering or machine.offering)
        count_failure(state, key, FailureClass.CAPACITY, at, f"{kind} of {machine.id}")
    if is_unexplained(machine):
        note_taken(state, machine, at)


def is_unexplained(machine: Machine) -> bool:
    """Return True if a late notice may be the only explanation of how the machine left its runner.

    The machine disappeared, was stopped, or was terminated after its runner's work because it was silent.
    """
    silent = machine.termination.reason is TerminationReason.SILENT_AND_FINISHED
    stopped = machine.work.exit_reason is ExitReason.STOPPED
    return silent or stopped or machine.state is MachineState.LOST


def note_taken(state: LedgerState, machine: Machine, at: Instant) -> None:
    """Mark a machine as interrupted under its runner, if it had a notice, and check the runner's job."""
    if machine.interruption.kind not in TAKES:
        return
    with state.changing(machine):
        machine.interruption.taken_at = at
    runner = state.runner_of(machine)
    job = state.jobs.get(runner.job) if runner is not None and runner.job is not None else None
    if job is not None:
        update_rerun(state, job, at)
