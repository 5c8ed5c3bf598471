"""Where runs come from, and which of their jobs ran outside the `access` of their SKU.

GitHub shows the origin for a run (`head_repository`, `repository`, `event` and `head_branch`: docs.github.com,
REST "Workflow runs"), not for a job. Until it is known, the job does not count as demand for a SKU whose
`access` depends on it.
"""

from itertools import islice

from autoscaler.ledger.job_holds import join_hold
from autoscaler.ledger.records.state import LedgerState
from autoscaler.model.backoff import Backoff
from autoscaler.model.events import JobObserved, RunRead, RunReadRequested
from autoscaler.model.identifiers import Instant, Seconds
from autoscaler.model.jobs.access_rules import rule_against
from autoscaler.model.jobs.demand import admits, scope_of
from autoscaler.model.jobs.job import Job, Question, RunOrigin
from autoscaler.model.jobs.runner_group_excess import REASONS_BY_KEY
from autoscaler.model.jobs.runners import Runner

FIRST_AGAIN: Seconds = 15.0
"""Delay before a run is read again. It doubles up to `_longest`."""

MOST_RUNS = 20_000
"""Maximum number of runs whose origin is kept. The oldest is removed first, and may be read again."""

OUTSIDE_ACCESS = "job_outside_access"
"""History event of a machine that ran a job that its SKU's `access` does not admit."""


def on_run_read(state: LedgerState, event: RunRead) -> None:
    """Admit the run's jobs to the SKUs whose `access` admits the run, or refuse them."""
    remember(state, event.run_id, event.origin)
    state.run_questions.pop(event.run_id, None)
    for job in tuple(state.unread.get(event.run_id, {}).values()):
        with state.changing(job):
            job.origin = event.origin
            state.admit(job)
        note_refusal(state, job, event.at)
        join_hold(state, job, event.at)
        runner, _ = state.runner_and_machine(job)
        if runner is not None and runner.job == job.id:
            note_access(state, runner, job, event.at, because_of_run=True)


def on_run_read_requested(state: LedgerState, event: RunReadRequested) -> None:
    """Schedule the next read of the run, in case no answer arrives."""
    if event.run_id not in state.unread:
        return
    question = state.run_questions.get(event.run_id) or Question(event.at, event.at)
    delay = Backoff(FIRST_AGAIN, _longest(state)).delay(question.reads)
    state.run_questions[event.run_id] = question.asked(event.at + delay)
    if len(state.run_questions) > 2 * len(state.unread) + 100:
        asked = state.run_questions
        state.run_questions = {run: asked[run] for run in asked if run in state.unread}


def _longest(state: LedgerState) -> Seconds:
    """Return the longest delay: a minute, or ten if a read of each run a minute were too many calls."""
    return min(max(60.0, 3.0 * len(state.unread)), 600.0)


def remember(state: LedgerState, run_id: int, origin: RunOrigin) -> None:
    """Keep a run's origin for its later jobs."""
    state.run_origins.pop(run_id, None)
    state.run_origins[run_id] = origin
    for oldest in tuple(islice(state.run_origins, max(0, len(state.run_origins) - MOST_RUNS))):
        del state.run_origins[oldest]


def note_refusal(state: LedgerState, job: Job, at: Instant) -> None:
    """Add to the history that no SKU with the job's labels may run the job, if that is so."""
    if job.admission.is_refusal:
        state.note(job, at, job.admission, "no SKU with its labels admits its run")


def note_access(
    state: LedgerState, runner: Runner, job: Job, at: Instant, because_of_run: bool = False
) -> None:
    """Add to the history that a machine runs a job that its SKU does not admit.

    GitHub only checks whether the runner group admits the repository. `because_of_run`: only the job's run is
    new, so that a job of another repository is not added again.
    """
    machine = state.machines.get(runner.machine)
    sku = state.catalogue.skus.get(machine.sku) if machine is not None else None
    if machine is None or sku is None:
        return
    if not admits(sku, job.repository):
        rule = None if because_of_run else "repositories"
    else:
        rule = None if job.origin is None else rule_against(sku.access, job.origin)
    if rule is not None:
        why = REASONS_BY_KEY[rule]
        state.note(machine, at, OUTSIDE_ACCESS, f"{why}: job {job.id} of {job.repository}")


def note_outside_scope(state: LedgerState, event: JobObserved) -> None:
    """Add to the history that a machine ran a job of a repository outside all scopes.

    The runner is found by GitHub's ID of the registration, within the organization in which it is
    registered. Its name alone proves nothing, because anyone can choose a runner's name.
    """
    runner = state.runners.get(event.runner_name) if event.runner_name is not None else None
    if runner is None or event.runner_id is None or event.runner_id != runner.github_id:
        return
    owner = event.repository.partition("/")[0].lower()
    if owner != runner.demand.account or scope_of(state.catalogue, event.repository) is not None:
        return
    machine = state.machines.get(runner.machine)
    if machine is not None and runner.name not in state.ran_outside:
        state.ran_outside = {name for name in state.ran_outside if name in state.runners}
        state.ran_outside.add(runner.name)
        detail = f"scope: job {event.id} of {event.repository}"
        state.note(machine, event.at, OUTSIDE_ACCESS, detail)
