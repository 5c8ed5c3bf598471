"""When the planner must look at a machine even if no event arrives, and why. No other code decides this.

Downtime of the controller extends deadlines. The ledger computes the result again with each change of the
machine, after a start, and when the catalogue changes.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from autoscaler.model.backoff import Backoff
from autoscaler.model.catalogue import DEFAULT_LIFETIME, Deadlines, LaunchOption, Sku
from autoscaler.model.identifiers import Instant, MachineId, Seconds
from autoscaler.model.machines.evidence import EVIDENCE_TIME, StartEvidence
from autoscaler.model.machines.machine import (
    KEPT_IN_QUARANTINE,
    RELEASED_STATES,
    Machine,
    MachineState,
    TerminationReason,
)

SILENCE: Seconds = 900.0
"""After this silence of an assigned machine's agent, the controller reads its runner at GitHub."""

ADOPTED_DUE_AFTER: Seconds = 60.0
"""The runner of an adopted machine is read at GitHub after this time."""

TERMINATED_AFTER_JOB: Seconds = 1800.0
"""Terminate a machine this long after its job, if GitHub shows that its registration is deleted."""

POWER_OFF_TIME: Seconds = 120.0
"""How long a machine may take to power itself off after it reported its runner's exit."""

TERMINATE_AGAIN = Backoff(120.0, 600.0)
"""Delay before the next request to terminate a machine. It doubles up to ten minutes."""

_S, _R = MachineState, TerminationReason


class Look(StrEnum):
    """What is due for a machine that is not terminated.

    read_runner      read its runner and its job at GitHub
    mark_unverified  treat it as assigned, because it may have been before the controller started
    """

    READ_RUNNER = "read_runner"
    MARK_UNVERIFIED = "mark_unverified"


@dataclass(frozen=True, slots=True)
class Due:
    """What is due for a machine from `at` on: a look, or its termination for a reason.

    `text` is the reason for operators.
    """

    machine: MachineId
    at: Instant
    why: TerminationReason | Look
    text: str = ""


def due_of(
    machine: Machine,
    sku: Sku | None,
    option: LaunchOption | None,
    work_over_at: Instant | None,
    quarantined_until: Instant | None,
    evidence: StartEvidence,
) -> tuple[Due, ...]:
    """Return what is due for a machine, now or later. Of those that are due, the planner does the first.

    `sku` and `option` (its launch option) are None if the configuration does not have them any more.
    `work_over_at` is when GitHub reported that the job of its runner is completed.
    """
    if (
        machine.termination.reason is _R.OPERATOR
        and machine.state in RELEASED_STATES
        and machine.occupies
    ):
        return (Due(machine.id, machine.since, _R.OPERATOR, "an operator released it"),)
    found = _due_in_state(machine, sku, option, work_over_at, evidence)
    is_kept = quarantined_until is not None and machine.state in KEPT_IN_QUARANTINE
    if machine.interruption.kind is not None and evidence.proves_unused(machine):
        text = f"{machine.interruption.kind} by its provider"
        found = (Due(machine.id, machine.since, _R.INTERRUPTED, text),)
    elif evidence.is_missing_for(machine) or evidence.has_no_list_with(machine):
        found = tuple(Due(machine.id, one.at, Look.MARK_UNVERIFIED) for one in found)
    elif is_kept and machine.state is not _S.FAILED:
        text = "its quarantine is over"
        found = tuple(replace(one, why=_R.LIFETIME, text=text) for one in found)
    if quarantined_until is not None and is_kept:
        return tuple(replace(one, at=quarantined_until) for one in found)
    return found


def is_silent(machine: Machine, at: Instant) -> bool:
    """Return True if an assigned machine's agent has been silent for `SILENCE`."""
    return machine.state is _S.ASSIGNED and at >= _silent_at(machine, SILENCE)


def _due_in_state(
    machine: Machine,
    sku: Sku | None,
    option: LaunchOption | None,
    work_over_at: Instant | None,
    evidence: StartEvidence,
) -> tuple[Due, ...]:
    match machine.state:
        case _S.LAUNCHED | _S.BOOTED:
            return (_due_while_booting(machine, sku, option, evidence),)
        case _S.READY:
            return (_due_while_ready(machine, sku, option, evidence),)
        case _S.ASSIGNED:
            return _due_while_assigned(machine, sku, work_over_at, evidence)
        case _S.EXITED:
            at = machine.since + _extended(POWER_OFF_TIME, machine)
            return (Due(machine.id, at, _R.EXITED, "its runner exited"),)
        case _S.FAILED if machine.occupies:
            return _due_after_failure(machine, sku)
        case _S.TERMINATING if machine.due is not None:
            why = machine.termination.reason or _R.SURPLUS
            return (Due(machine.id, machine.due, why, "the earlier request had no effect"),)
    return ()


def _due_while_booting(
    machine: Machine, sku: Sku | None, option: LaunchOption | None, evidence: StartEvidence
) -> Due:
    deadlines = sku.deadlines if sku is not None else Deadlines()
    if machine.state is _S.LAUNCHED:
        patience = deadlines.boot + (option.longest_wait if option is not None else 0.0)
        text = "no attestation before the boot deadline"
    else:
        patience, text = deadlines.health_checks, "its health checks did not finish in time"
    at = machine.since + _extended(patience, machine)
    if not evidence.proves_record_of(machine):
        # The store may be a restored backup. A listing shows that within minutes.
        at = max(at, evidence.started_at + EVIDENCE_TIME)
    return Due(machine.id, at, _R.DEADLINE, text)


def _due_while_ready(
    machine: Machine, sku: Sku | None, option: LaunchOption | None, evidence: StartEvidence
) -> Due:
    text = "it was ready, and sent no heartbeat in time"
    found = [_due_if_silent(machine, sku, evidence, text)]
    # A machine whose agent has not polled yet may have a job.
    if sku is not None and machine.work.agent_seen:
        if option is not None and option.until is not None:
            text = "the provider takes its capacity back soon"
            found.append(Due(machine.id, option.until, _R.SURPLUS, text))
        age = sku.idle.max_age
        found.append(
            Due(machine.id, machine.first_ready_at + age, _R.MAX_AGE, f"ready for {age:g} s")
        )
    return min(reversed(found), key=lambda due: due.at)


def _due_while_assigned(
    machine: Machine, sku: Sku | None, work_over_at: Instant | None, evidence: StartEvidence
) -> tuple[Due, ...]:
    if machine.termination.reason is _R.FINISHED:
        text = "its job completed half an hour ago, and its runner is not registered any more"
        return (Due(machine.id, machine.since, _R.FINISHED, text),)
    if not machine.work.may_run_job:
        text = "it did not fetch its assignment in time"
        return (_due_if_silent(machine, sku, evidence, text),)
    return _due_at_work(machine, sku, _next_read(machine, work_over_at))


def _due_after_failure(machine: Machine, sku: Sku | None) -> tuple[Due, ...]:
    if machine.work.may_run_job:
        read_at = machine.work.read_at
        return _due_at_work(machine, sku, machine.since if read_at is None else read_at + SILENCE)
    # A machine without a failure is one too many: its launch request has no slot for it.
    found = _R.SURPLUS if machine.failure is None else _R.FAILED
    return (Due(machine.id, machine.since, machine.termination.reason or found, machine.reason),)


def _due_if_silent(machine: Machine, sku: Sku | None, evidence: StartEvidence, text: str) -> Due:
    patience = (sku.deadlines if sku is not None else Deadlines()).ready_silence
    at = _silent_at(machine, patience)
    if not evidence.proves_record_of(machine):
        # After a start, give the agent the full time to send a request.
        at = max(at, evidence.started_at + patience)
    return Due(machine.id, at, _R.DEADLINE, text)


def _due_at_work(machine: Machine, sku: Sku | None, next_read_at: Instant) -> tuple[Due, ...]:
    lifetime = sku.lifetime if sku is not None else DEFAULT_LIFETIME
    assigned_at, work = machine.progress.assigned_at, machine.work
    start = machine.since if assigned_at is None else assigned_at
    found = [Due(machine.id, start + lifetime, _R.LIFETIME, f"assigned {lifetime:g} s ago")]
    if work.finished_reads >= 2 and work.read_at is not None:
        text = "no heartbeat, and GitHub shows that its runner has no job any more"
        found.append(Due(machine.id, work.read_at, _R.SILENT_AND_FINISHED, text))
    found.append(Due(machine.id, next_read_at, Look.READ_RUNNER))
    return tuple(found)


def _next_read(machine: Machine, work_over_at: Instant | None) -> Instant:
    """Return when to ask GitHub for a machine's runner.

    That is when its agent is silent, or some time after its job although the agent sends requests.
    """
    read_at = machine.work.read_at
    if machine.slot < 0 and read_at is None:
        return machine.since + ADOPTED_DUE_AFTER
    next_at = _silent_at(machine, SILENCE)
    if work_over_at is not None:
        next_at = min(next_at, work_over_at + SILENCE)
    return next_at if read_at is None else max(next_at, read_at + SILENCE)


def _silent_at(machine: Machine, patience: Seconds) -> Instant:
    last_seen_at = max(machine.work.last_seen or machine.since, machine.since)
    return last_seen_at + _extended(patience, machine)


def _extended(length: Seconds, machine: Machine) -> Seconds:
    # Downtime extends deadlines, but a crash loop must not extend them for ever.
    return min(length + machine.absence, 3.0 * length)
