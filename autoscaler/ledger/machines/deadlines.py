"""When the planner must look at a machine again even if no event arrives.

Downtime of the controller extends deadlines. The planner decides what follows from a deadline.
"""

import math

from autoscaler.ledger.records.state import LedgerState
from autoscaler.model.backoff import Backoff
from autoscaler.model.catalogue import DEFAULT_LIFETIME, Deadlines
from autoscaler.model.identifiers import Instant, Seconds
from autoscaler.model.jobs.runners import RunnerState
from autoscaler.model.machines.evidence import EVIDENCE_TIME
from autoscaler.model.machines.machine import (
    KEPT_IN_QUARANTINE,
    RELEASED_STATES,
    Machine,
    MachineState,
    TerminationReason,
)
from autoscaler.model.operator_holds import quarantine_of

SILENCE: Seconds = 900.0
"""After this silence of an assigned machine's agent, the controller reads its runner at GitHub."""

TERMINATED_AFTER_JOB: Seconds = 1800.0
"""Terminate a machine this long after its job, if GitHub shows that its registration is deleted."""

POWER_OFF_TIME: Seconds = 120.0
"""How long a machine may take to power itself off after it reported its runner's exit."""

TERMINATE_AGAIN = Backoff(120.0, 600.0)
"""Delay before the next request to terminate a machine. It doubles up to ten minutes."""

_S = MachineState


def lifetime_end(state: LedgerState, machine: Machine) -> Instant:
    """Return when an assigned machine's lifetime ends, counted from the assignment."""
    sku = state.catalogue.skus.get(machine.sku)
    start = (
        machine.progress.assigned_at if machine.progress.assigned_at is not None else machine.since
    )
    return start + (sku or _FALLBACK).lifetime


def due(state: LedgerState, machine: Machine) -> Instant | None:
    """Return when the planner must look at a machine even if no event arrives, or None."""
    if _is_due_at_once(state, machine):
        return machine.since
    quarantined = quarantine_of(state.operator_holds, machine.id)
    kept = machine.state in KEPT_IN_QUARANTINE and machine.occupies
    if quarantined is not None and kept:
        return quarantined.until
    return _deadline(state, machine)


def _deadline(state: LedgerState, machine: Machine) -> Instant | None:
    deadlines = (state.catalogue.skus.get(machine.sku) or _FALLBACK).deadlines
    match machine.state:
        case _S.LAUNCHED:
            return _late(state, machine, deadlines.boot + _longest_wait(state, machine))
        case _S.BOOTED:
            return _late(state, machine, deadlines.health_checks)
        case _S.READY:
            silent = _silent_while_ready(state, machine, deadlines.ready_silence)
            return min(silent, _too_old_at(state, machine))
        case _S.ASSIGNED if not machine.work.may_run_job:
            return _silent_while_ready(state, machine, deadlines.ready_silence)
        case _S.ASSIGNED:
            silent = _last_seen_at(machine) + _extended(SILENCE, machine)
            return min(silent, lifetime_end(state, machine), _next_read_after_job(state, machine))
        case _S.EXITED:
            return machine.since + _extended(POWER_OFF_TIME, machine)
        case _S.FAILED:
            return machine.since if machine.placement.provider_id is not None else None
        case _S.TERMINATING:
            return machine.due
    return None


def is_silent(machine: Machine, at: Instant) -> bool:
    """Return True if an assigned machine's agent has been silent for `SILENCE`."""
    return machine.state is _S.ASSIGNED and at >= _last_seen_at(machine) + _extended(
        SILENCE, machine
    )


def work_over_at(state: LedgerState, machine: Machine) -> Instant | None:
    """Return when GitHub reported that the job of a machine's runner is completed, or None."""
    runner = state.runners.get(machine.work.runner) if machine.work.runner is not None else None
    if runner is None or runner.job is None or runner.state is not RunnerState.DONE:
        return None
    return runner.since


def _next_read_after_job(state: LedgerState, machine: Machine) -> Instant:
    """Return when to ask GitHub for a machine's registration although its agent sends requests."""
    over_at = work_over_at(state, machine)
    if over_at is None:
        return math.inf
    return max(over_at, machine.work.read_at or over_at) + SILENCE


def _is_due_at_once(state: LedgerState, machine: Machine) -> bool:
    reason, finished = machine.termination.reason, TerminationReason.FINISHED
    decided = reason is finished and machine.state is _S.ASSIGNED
    released = machine.state in RELEASED_STATES and machine.occupies
    decided |= reason is TerminationReason.OPERATOR and released
    interrupted = machine.interruption.kind is not None and state.evidence.proves_unused(machine)
    return decided or interrupted


def _longest_wait(state: LedgerState, machine: Machine) -> Seconds:
    """Return how long a machine of this launch option may wait for a host before it boots."""
    request = state.launch_requests.get(machine.launch_request)
    option = request.option_in(state.catalogue) if request is not None else None
    return option.longest_wait if option is not None else 0.0


def _late(state: LedgerState, machine: Machine, patience: Seconds) -> Instant:
    due_at = machine.since + _extended(patience, machine)
    if state.evidence.proves_record_of(machine):
        return due_at
    # The store may be a restored backup. A listing shows that within minutes.
    return max(due_at, state.started_at + EVIDENCE_TIME)


def _silent_while_ready(state: LedgerState, machine: Machine, patience: Seconds) -> Instant:
    due_at = _last_seen_at(machine) + _extended(patience, machine)
    if state.evidence.proves_record_of(machine):
        return due_at
    # After a start, give the agent the full time to send a request.
    return max(due_at, state.started_at + patience)


def _too_old_at(state: LedgerState, machine: Machine) -> Instant:
    """Return when a ready machine reaches `idle.max_age`, or no job may start on it any more.

    Never before its agent polls.
    """
    sku = state.catalogue.skus.get(machine.sku)
    if sku is None or not machine.work.agent_seen:
        return math.inf
    request = state.launch_requests.get(machine.launch_request)
    option = request.option_in(state.catalogue) if request is not None else None
    until = option.until if option is not None else None
    too_old_at = machine.first_ready_at + sku.idle.max_age
    return too_old_at if until is None else min(too_old_at, until)


def _last_seen_at(machine: Machine) -> Instant:
    return max(machine.work.last_seen or machine.since, machine.since)


def _extended(length: Seconds, machine: Machine) -> Seconds:
    # Downtime extends deadlines, but a crash loop must not extend them for ever.
    return min(length + machine.absence, 3.0 * length)


class _Fallback:
    """Defaults for machines of a SKU that is not in the configuration any more."""

    deadlines = Deadlines()
    lifetime: Seconds = DEFAULT_LIFETIME


_FALLBACK = _Fallback()
