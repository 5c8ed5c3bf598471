"""Applies what GitHub reports about jobs. Each job has a record whose state only moves forward.

Counting webhooks would not work: GitHub sends `completed` again for old jobs of a re-run, and a delivery
may be lost, late, repeated or out of order.
"""

from autoscaler.ledger.job_holds import join_hold, release_holds
from autoscaler.ledger.jobs.runners import bind_job, close_runner
from autoscaler.ledger.jobs.runs import note_access, note_outside_scope, note_refusal
from autoscaler.ledger.machines.reruns import update_rerun
from autoscaler.ledger.machines.unverified import shown_at_work
from autoscaler.ledger.records.indexes import is_on_hold
from autoscaler.ledger.records.state import LedgerState
from autoscaler.model.catalogue import Scope
from autoscaler.model.changes import HistoryRow, may_become
from autoscaler.model.events import (
    FaultChanged,
    JobAbandoned,
    JobObserved,
    JobReadRequested,
    WaitReasonsChanged,
)
from autoscaler.model.identifiers import Instant, Seconds
from autoscaler.model.jobs.demand import normalise_labels, scope_of
from autoscaler.model.jobs.job import (
    JOB_TRANSITIONS,
    QUEUED_AT_MOST,
    Admission,
    Job,
    JobState,
    Question,
)
from autoscaler.model.jobs.runners import Runner
from autoscaler.model.reasons.spells import row_of

REREAD_AFTER: Seconds = 60.0
"""Delay before a disputed job or a job on hold is read again."""

EXPIRED_AT_ONCE = 500
"""Maximum number of jobs that one TimePassed event ends. After a long outage thousands expire."""

_NOT_OVER = frozenset({JobState.WAITING, JobState.QUEUED, JobState.IN_PROGRESS})

ABANDONED = "stale"
"""Conclusion of a job whose end GitHub did not report: GitHub's conclusion for incomplete checks."""


def on_job_observed(state: LedgerState, event: JobObserved) -> None:
    """Create or update the job that GitHub reported."""
    note_outside_scope(state, event)
    job = state.jobs.get(event.id)
    was_refused = job is not None and job.admission.is_refusal
    if job is None:
        if scope_of(state.catalogue, event.repository) is None:
            return  # No scope covers it, so it would stay in memory for days.
        job = _new_job(state, event)
        state.add(job)
        state.note(job, event.at, event.state, _source(event))
    else:
        _merge(state, job, event)
    if not was_refused:
        note_refusal(state, job, event.at)
    join_hold(state, job, event.at)
    if job.disputed or (_lacks_run(job) and not event.read):
        state.reads.setdefault(job.id, Question(event.at, event.at))
    elif event.read or job.state is not JobState.QUEUED or not is_on_hold(job):
        state.reads.pop(job.id, None)
    _follow(state, job, event)
    update_rerun(state, job, event.at)


def on_job_read_requested(state: LedgerState, event: JobReadRequested) -> None:
    """Schedule the next read of the job, in case no answer arrives."""
    if (question := state.reads.get(event.id)) is not None:
        state.reads[event.id] = question.asked(event.at + REREAD_AFTER)


def on_job_abandoned(state: LedgerState, event: JobAbandoned) -> None:
    """End the job, unless it has started in the meantime."""
    job = state.jobs.get(event.id)
    if job is not None and job.state in (JobState.QUEUED, JobState.WAITING):
        _abandon(state, job, event.at, event.reason)


def on_wait_reasons_changed(state: LedgerState, event: WaitReasonsChanged) -> None:
    """Add to the history of a demand class why its jobs have no machine on its way."""
    said = "; ".join(reason.message for reason in event.reasons)
    code = event.reasons[0].code if event.reasons else ""
    row = HistoryRow(
        event.since, "demand", event.demand.text, "blocked" if code else "served", said[:500], code
    )
    state.note_row(row)


def on_fault_changed(state: LedgerState, event: FaultChanged) -> None:
    """Add the begin or the end of a fault to the history."""
    state.note_row(row_of(event.spell))


def expire(state: LedgerState, at: Instant) -> None:
    """End up to `EXPIRED_AT_ONCE` jobs whose time at GitHub is over, the most overdue first."""
    for _ in range(EXPIRED_AT_ONCE):
        if not is_any_overdue(state, at):
            return
        job = state.expiring.peekitem(0)[1]
        _abandon(state, job, at, f"{job.state} for longer than GitHub allows")


def is_any_overdue(state: LedgerState, at: Instant) -> bool:
    """Return True if `expire` would end a job."""
    return bool(state.expiring) and state.expiring.peekitem(0)[0][0] <= at


def _abandon(state: LedgerState, job: Job, at: Instant, reason: str) -> None:
    with state.changing(job):
        state.enter(job, JobState.COMPLETED)
        job.updated_at, job.disputed = at, False
        job.completed_at, job.conclusion = at, ABANDONED
    state.reads.pop(job.id, None)
    state.note(job, at, JobState.COMPLETED, reason)


def _new_job(state: LedgerState, event: JobObserved) -> Job:
    job = Job(
        id=event.id,
        repository=event.repository,
        labels=normalise_labels(event.labels),
        demand=None,
        state=event.state,
        queued_at=event.queued_at,
        updated_at=event.at,
        # An old webhook, perhaps: read the job before launching a machine for it.
        disputed=not event.read
        and event.state is JobState.QUEUED
        and event.at - event.queued_at > QUEUED_AT_MOST,
    )
    _fill(job, event)
    state.admit(job)
    return job


def _merge(state: LedgerState, job: Job, event: JobObserved) -> None:
    before, forward = job.state, may_become(job, event.state)
    back = job.state in JOB_TRANSITIONS[event.state]
    level = forward is back  # the same state, or GitHub moves a job both ways
    with state.changing(job):
        run_id = job.run_id
        _fill(job, event)
        if not job.labels and event.labels:
            job.labels = normalise_labels(event.labels)
            state.admit(job)
        elif job.run_id != run_id:
            state.admit(job)
        job.queued_at = min(job.queued_at, event.queued_at)
        if (forward and not back) or (event.read and level):
            if event.state is not job.state or (job.disputed and not job.passed_over):
                # A repeated answer, or a passed-over runner, must not extend the job's expiry.
                job.updated_at = event.at
            if event.state is not job.state:
                state.enter(job, event.state)
            job.disputed = False
        elif level and event.state is not job.state:
            # Webhooks do not show which of the two is newer: read the job.
            job.disputed = True
    if job.state is not before or job.disputed:
        state.note(job, event.at, "disputed" if job.disputed else job.state, _source(event))


def _fill(job: Job, event: JobObserved) -> None:
    job.name = job.name or event.name
    job.workflow = job.workflow or event.workflow
    job.run_id = job.run_id if job.run_id is not None else event.run_id
    job.run_attempt = max(job.run_attempt, event.run_attempt)
    if event.read:
        job.read_at = event.at
    if event.state in (JobState.IN_PROGRESS, JobState.COMPLETED):
        job.runner_name = job.runner_name or event.runner_name
        if job.runner_name is not None:
            job.started_at = job.started_at or event.started_at or event.at
    if event.state is JobState.COMPLETED:
        job.completed_at = job.completed_at or event.completed_at or event.at
        job.conclusion = job.conclusion or event.conclusion


def _follow(state: LedgerState, job: Job, event: JobObserved) -> None:
    at = event.at
    if job.runner_name is None:
        return
    scope, runner = scope_of(state.catalogue, job.repository), state.runners.get(job.runner_name)
    # Anyone can choose a runner's name: outside the scopes it proves nothing.
    if scope is None or (runner is not None and not _is_the_same(runner, scope, event)):
        return
    if job.state is JobState.IN_PROGRESS and event.state is JobState.IN_PROGRESS:
        shown_at_work(state, job.runner_name, at)
    if runner is None:
        return
    if runner.job != job.id:
        note_access(state, runner, job, at)
        release_holds(state, job, runner, at)
    if job.state is JobState.IN_PROGRESS:
        bind_job(state, runner, job.id, at)
    elif job.state is JobState.COMPLETED:
        bind_job(state, runner, job.id, at)
        # A job that this ledger ended may still run if GitHub reports its start later.
        if event.state is JobState.COMPLETED or job.conclusion != ABANDONED:
            close_runner(state, runner, at, f"job {job.id} completed")


def _is_the_same(runner: Runner, scope: Scope, event: JobObserved) -> bool:
    """Return True if the runner that GitHub names is the one that the controller registered.

    Job logs show runner names, and a repository may register another runner with the same name.
    """
    if scope.key != runner.demand.scope:
        return False
    return None in (event.runner_id, runner.github_id) or event.runner_id == runner.github_id


def _lacks_run(job: Job) -> bool:
    """Return True if the job's admission depends on its run, and its run is not known."""
    return job.admission is Admission.UNREAD and job.run_id is None and job.state in _NOT_OVER


def _source(event: JobObserved) -> str:
    return "read" if event.read else "webhook"
