"""Finds the jobs that an interruption killed, and says when GitHub is asked to rerun them.

A job was killed by an interruption only if all of these hold:

- GitHub bound the job to a runner of this fleet.
- The provider gave notice of the machine, or a reason for its termination.
- The agent reported that the operating system stopped the runner, or the machine disappeared without a
  report of the runner's exit, or the agent has been silent for 15 minutes, and the runner's work is over.
  A pod on a lost node does not disappear until the node is deleted.
- The job failed after the notice.
"""

import math
from collections.abc import Iterator

from autoscaler.ledger.records.state import LedgerState
from autoscaler.model.backoff import Backoff
from autoscaler.model.catalogue import NO_RERUN
from autoscaler.model.changes import HistoryRow
from autoscaler.model.events import RerunAnswered, RerunRequested
from autoscaler.model.identifiers import Instant, JobId, Seconds
from autoscaler.model.jobs.job import Job, JobState
from autoscaler.model.machines.due import is_silent
from autoscaler.model.machines.interruptions import TAKES, Rerun, RerunOutcome, RerunState
from autoscaler.model.machines.machine import Machine

ASK_AGAIN = Backoff(15.0, 900.0)
"""A run completes some seconds after its last job, and GitHub reruns only jobs of completed runs."""

SIBLINGS_AWAITED: Seconds = 900.0
"""GitHub ends the job of a lost runner after about ten minutes."""

GIVEN_UP_AFTER: Seconds = 7 * 86_400.0
"""GitHub lets a job run for five days (docs.github.com: Actions limits)."""


def update_rerun(state: LedgerState, job: Job, at: Instant) -> None:
    """Check whether a job died with its machine, and schedule or refuse its rerun."""
    rerun = state.reruns.get(job.id)
    if rerun is None:
        machine = _taken_under(state, job, at)
        if machine is None or job.run_id is None:
            return
        rerun = _new_rerun(state, job, job.run_id, machine, at)
    if rerun.state is not RerunState.WAITING or job.state is not JobState.COMPLETED:
        return
    # GitHub's times are whole seconds, and an evicted pod's job may fail in the second of its notice.
    if job.conclusion != "failure" or (job.completed_at or at) < math.floor(rerun.taken_at):
        _end(state, rerun, RerunOutcome.NOT_KILLED, at, job.conclusion or "no conclusion")
        return
    refusal = _unwanted(state, job, rerun)
    if refusal is not None:
        _end(state, rerun, refusal, at)
        return
    with state.changing(rerun):
        state.enter(rerun, RerunState.DUE)
        rerun.due = at + ASK_AGAIN.first
    _note(state, rerun, at, "rerun_due", "its machine was interrupted")


def on_rerun_requested(state: LedgerState, event: RerunRequested) -> None:
    """Schedule the next request, with a growing delay."""
    for rerun in _known(state, event.jobs):
        wait = ASK_AGAIN.delay(rerun.asked)
        with state.changing(rerun):
            rerun.asked += 1
            rerun.unanswered += 1
            rerun.due = event.at + wait


def on_rerun_answered(state: LedgerState, event: RerunAnswered) -> None:
    """Store GitHub's answer: the jobs are rerun, will not be rerun, or (no outcome) not yet."""
    asked_for, outcome = _known(state, event.jobs), event.outcome
    done = asked_for if outcome is RerunOutcome.ACCEPTED else []
    if outcome is RerunOutcome.SUPERSEDED:
        # The run has another attempt. An earlier request without an answer may have started it.
        done = [rerun for rerun in asked_for if rerun.unanswered > 1]
    for rerun in done:
        _end(state, rerun, RerunOutcome.ACCEPTED, event.at, event.detail)
    if done:
        _count_attempt(state, done[0])
        return
    for rerun in asked_for:
        if outcome is not None:
            _end(state, rerun, outcome, event.at, event.detail)
            continue
        with state.changing(rerun):
            # This request had no effect. An earlier one without an answer may have had one.
            rerun.unanswered = max(0, rerun.unanswered - 1)
            rerun.reason = event.detail[:500]


def due_reruns(state: LedgerState, now: Instant) -> list[tuple[Rerun, ...]]:
    """Return the jobs to rerun now, grouped by run and attempt.

    A group waits up to `SIBLINGS_AWAITED` for jobs whose end is not known yet, because GitHub would
    rerun the others without them. Reruns over budget are omitted; `give_up` ends them.
    """
    keys = {
        (one.run_id, one.run_attempt) for one in _due(state, now) if one.state is RerunState.DUE
    }
    groups = [_asked_for_together(state, *key, now) for key in sorted(keys)]
    return [group for group in groups if group]


def _asked_for_together(
    state: LedgerState, run_id: int, attempt: int, now: Instant
) -> tuple[Rerun, ...]:
    siblings = [one for one in state.reruns_of_run[run_id].values() if one.run_attempt == attempt]
    for one in siblings:
        if one.state is RerunState.WAITING and now < one.created_at + SIBLINGS_AWAITED:
            return ()
    return tuple(
        one for one in siblings if one.state is RerunState.DUE and not over_budget(state, one)
    )


def over_budget(state: LedgerState, rerun: Rerun) -> bool:
    """Return True if as many attempts of the run already had reruns as the SKU's `rerun_interrupted` allows.

    The job's own attempt does not count, because all jobs that died in one attempt may be rerun.
    """
    sku = state.catalogue.skus.get(rerun.sku)
    used = {one.died_in for one in _accepted(state, rerun.run_id)} - {rerun.died_in}
    return len(used) >= (sku.rerun_interrupted if sku is not None else 0)


def give_up(state: LedgerState, at: Instant) -> None:
    """End reruns that waited too long or are over budget."""
    for rerun in tuple(_due(state, at)):
        if at - rerun.created_at >= GIVEN_UP_AFTER:
            _end(state, rerun, RerunOutcome.EXPIRED, at, rerun.reason)
        elif rerun.state is RerunState.DUE and over_budget(state, rerun):
            _end(state, rerun, RerunOutcome.OVER_BUDGET, at)


def _due(state: LedgerState, now: Instant) -> Iterator[Rerun]:
    for (moment, _), rerun in state.rerun_due.items():
        if moment > now:
            return
        yield rerun


def _accepted(state: LedgerState, run_id: int) -> list[Rerun]:
    """Return the run's reruns that GitHub accepted."""
    known = state.reruns_of_run.get(run_id, {}).values()
    return [rerun for rerun in known if rerun.outcome is RerunOutcome.ACCEPTED]


def _known(state: LedgerState, jobs: tuple[JobId, ...]) -> list[Rerun]:
    found = (state.reruns.get(job) for job in jobs)
    return [rerun for rerun in found if rerun is not None and rerun.state is RerunState.DUE]


def _taken_under(state: LedgerState, job: Job, at: Instant) -> Machine | None:
    """Return the interrupted machine on which the job ran, or None."""
    runner, machine = state.runner_and_machine(job)
    if runner is None or machine is None or runner.job != job.id:
        return None
    taken = machine.interruption.taken_at is not None
    silent = machine.interruption.kind in TAKES and is_silent(machine, at)
    if silent and not taken and job.state is JobState.COMPLETED:
        with state.changing(machine):
            machine.interruption.taken_at = at
        taken = True
    return machine if taken else None


def _new_rerun(state: LedgerState, job: Job, run_id: int, machine: Machine, at: Instant) -> Rerun:
    # The run may already have a later attempt, started for other jobs of this attempt.
    since = [one.run_attempt + 1 for one in _accepted(state, run_id)]
    died_in = max(job.run_attempt, 1)
    rerun = Rerun(
        job=job.id,
        repository=job.repository,
        run_id=run_id,
        run_attempt=max([died_in, *since]),
        died_in=died_in,
        sku=machine.sku,
        machine=machine.id,
        state=RerunState.WAITING,
        taken_at=machine.interruption.at or at,
        created_at=at,
        due=at + GIVEN_UP_AFTER,
    )
    state.add(rerun)
    _note(state, rerun, at, "interrupted", f"{machine.interruption.kind} of {machine.id}")
    return rerun


def _unwanted(state: LedgerState, job: Job, rerun: Rerun) -> RerunOutcome | None:
    sku = state.catalogue.skus.get(rerun.sku)
    if sku is None or not sku.rerun_interrupted:
        return RerunOutcome.OFF
    if NO_RERUN in job.labels:
        return RerunOutcome.OPTED_OUT
    return RerunOutcome.OVER_BUDGET if over_budget(state, rerun) else None


def _count_attempt(state: LedgerState, done: Rerun) -> None:
    """Count the new attempt for the run's other jobs, so that it does not look like a user's."""
    for other in tuple(state.reruns_of_run[done.run_id].values()):
        if other.state is not RerunState.ENDED and other.run_attempt == done.run_attempt:
            with state.changing(other):
                other.run_attempt += 1
                other.unanswered = 0  # an earlier request for it did not start this attempt


def _end(
    state: LedgerState, rerun: Rerun, outcome: RerunOutcome, at: Instant, detail: str = ""
) -> None:
    with state.changing(rerun):
        if not state.enter(rerun, RerunState.ENDED):
            return
        rerun.outcome, rerun.unanswered = outcome, 0
        rerun.due, rerun.ended_at = None, at
        rerun.reason = detail[:500]
    _note(state, rerun, at, f"rerun_{outcome}", detail)


def _note(state: LedgerState, rerun: Rerun, at: Instant, event: str, detail: str) -> None:
    # The row belongs to the job, which may not be in memory any more.
    state.note_row(HistoryRow(at, "job", str(rerun.job), event, detail[:500]))
