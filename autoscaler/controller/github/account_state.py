"""The state of one account's sync with GitHub, and the events that each list adds to the ledger.

A list may be a little older than a webhook, so it only moves a job forward. If it contradicts the ledger,
the job itself is read.
"""

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from autoscaler.controller.github.read_schedule import BY_STATUS, Kind, Known, KnownRun, Read, Turn
from autoscaler.controller.ports.github_lists import (
    MOST_REPOSITORIES,
    ListedRepository,
    ListedRun,
)
from autoscaler.ledger.records.state import LedgerState
from autoscaler.model.events import Event, JobAbandoned, JobObserved, RunRead
from autoscaler.model.identifiers import Instant, JobId, Seconds
from autoscaler.model.jobs.demand import scope_of
from autoscaler.model.jobs.job import Job, JobState

ABANDONED_AFTER: Seconds = 60.0
"""How long a completed run must show a job as queued before the job counts as abandoned."""

ASK_AGAIN: Seconds = 300.0
ASK_AT_ONCE = 3
"""Maximum number of a run's jobs missing from its list that are read after one listing."""

MOST_RUNS = 20_000

_OF_REPOSITORIES = (Kind.NEWEST, *BY_STATUS)
_NO_JOBS: frozenset[JobId] = frozenset()
_OPEN = frozenset({JobState.QUEUED, JobState.WAITING, JobState.IN_PROGRESS})
_NOT_STARTED = frozenset({JobState.QUEUED, JobState.WAITING})

RunKey = tuple[str, int]


@dataclass(slots=True)
class _Run(KnownRun):
    """A run that is not completed, or completed recently. `open_jobs` are the ledger's open jobs of it.

    `attempt` is the latest one of which a job is known.
    """

    mark: str = ""
    attempt: int = 0
    completed_since: Instant | None = None
    open_jobs: frozenset[JobId] = _NO_JOBS
    seen_queued_at: dict[JobId, Instant] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Findings:
    """Events for the ledger, and jobs that must be read one by one."""

    events: tuple[Event, ...] = ()
    ask: tuple[JobId, ...] = ()


class SyncState:
    """What one account's lists have shown so far. Kept in memory only; a new process lists again."""

    def __init__(self, account: str, scopes: Iterable[str], began_at: Instant) -> None:
        self.account = account
        self._scopes = dict.fromkeys(scopes, False)
        self._repositories: dict[str, Instant] = {}
        self._names: dict[str, str] = {}
        self._unwatched: dict[str, int] = {}
        self._runs: dict[RunKey, _Run] = {}
        self._turns: dict[Read, Turn] = {}
        self._asked: dict[JobId, Instant] = {}
        self.known = Known(began_at, self._scopes, self._repositories, self._runs, self._turns)
        """What the schedule needs to choose the next reads. It shows later changes, too."""

    @property
    def unwatched(self) -> int:
        """The number of unwatched repositories, beyond the maximum."""
        return sum(self._unwatched.values())

    def was_read(self, read: Read, began_at: Instant, calls: int = 1) -> None:
        """Note a successful read, and how many of its answers counted against the rate limit."""
        self._had_its_turn(read, Turn(began_at, began_at, calls=calls))

    def was_not_read(self, read: Read, began_at: Instant, counts: bool) -> int:
        """Note a failed read and return its number of failures. `counts`: the failure is the read's own."""
        last = self._turns.get(read, Turn(began_at))
        failures = last.failures + counts
        self._had_its_turn(read, replace(last, tried_at=began_at, failures=failures))
        return failures

    def _had_its_turn(self, read: Read, turn: Turn) -> None:
        # The run may be completed, or the repository unwatched, since the read began.
        if read.run and (read.of, read.run) not in self._runs:
            return
        if read.kind in _OF_REPOSITORIES and read.of not in self._repositories:
            return
        self._turns[read] = turn

    def set_urgent(self, scope: str, urgent: bool) -> None:
        """Set whether a scope's registrations are read again sooner than usual."""
        self._scopes[scope] = urgent

    def add_known(self, state: LedgerState, now: Instant) -> None:
        """Add the repositories and runs that the ledger knows. O(repositories and runs)."""
        activity = state.activity.of(self.account)
        for known in activity.repositories.values():
            self.note_activity(self._name(known.name), known.updated_at, state)
        open_jobs: dict[RunKey, frozenset[JobId]] = {}
        attempts: dict[RunKey, int] = {}
        for (repository, number), jobs in activity.runs.items():
            name = self._names.get(repository) or activity.repositories[repository].name
            # A copy: the ledger replaces its own with each change of a job.
            open_jobs[name, number] = frozenset(jobs)
            attempts[name, number] = max(job.run_attempt for job in jobs.values())
        for key in open_jobs:
            if key not in self._runs and len(self._runs) < MOST_RUNS:
                self._runs[key] = _Run(now, now)
        for key, run in self._runs.items():
            run.open_jobs = open_jobs.get(key, _NO_JOBS)
            run.attempt = max(run.attempt, attempts.get(key, 0))
        self._asked = {job: at for job, at in self._asked.items() if now - at < ASK_AGAIN}

    def listed_repositories(
        self,
        scope: str,
        listed: Sequence[ListedRepository],
        state: LedgerState,
        whole: bool = True,
    ) -> int:
        """Update the watched repositories of a scope. Return how many are unwatched.

        Above the maximum, the repositories without activity for longest are unwatched. A list that is
        not `whole` removes none, and a repository with open jobs stays watched.
        """
        known = [name for name in self._repositories if _covers(state, name, scope)]
        alive = {name: self._repositories[name] for name in known} if not whole else {}
        for one in listed:
            if _covers(state, one.name, scope):
                name = self._name(one.name)
                alive[name] = max(one.pushed_at or 0.0, self._repositories.get(name, 0.0))
        found = set(heapq.nlargest(MOST_REPOSITORIES, alive, key=alive.__getitem__))
        at_work = {repository for (repository, _), run in self._runs.items() if run.open_jobs}
        for name in known:
            if name not in found and name not in at_work:
                self._drop_repository(name)
        for name in alive:  # in the list's order, because a set's order differs between processes
            if name in found:
                self._seen(name, alive[name])
        self._drop_unwatched_runs(state, scope)
        self._unwatched[scope] = len(alive) - len(found)
        return self._unwatched[scope]

    def listed_runs(self, repository: str, listed: Sequence[ListedRun], now: Instant) -> None:
        """Remember runs that are not over, and which of the known ones have changed."""
        for seen in listed:
            key = (repository, seen.id)
            run = self._runs.get(key)
            if run is None:
                if seen.completed or len(self._runs) >= MOST_RUNS:
                    continue
                run = self._runs[key] = _Run(now, now, mark=seen.mark)
            run.changed = run.changed or run.mark != seen.mark
            run.mark, run.listed_at = seen.mark, now
            if not seen.completed:
                run.completed_since = None
                run.seen_queued_at.clear()
                if repository in self._repositories:
                    self._repositories[repository] = now
            elif run.completed_since is None:
                run.completed_since = now

    def run_is_not_there(self, repository: str, run_id: int, now: Instant) -> None:
        """Note a 404: the run is deleted, or no longer visible to the App."""
        run = self._runs.get((repository, run_id))
        if run is not None:
            run.listed_at = now
            if not run.open_jobs:
                self._drop_run((repository, run_id))

    def listed_jobs(
        self, key: RunKey, listed: Sequence[JobObserved], state: LedgerState, now: Instant
    ) -> Findings:
        """Return the events of a run's listed jobs, and which of its open jobs are missing."""
        run = self._runs.get(key)
        if run is None:
            return Findings()
        run.changed = False
        events: list[Event] = []
        if any(one.run_attempt > run.attempt and one.state in _OPEN for one in listed):
            # The list of runs is older: it showed the end of the attempt before.
            run.completed_since = None
        run.attempt = max([run.attempt, *(one.run_attempt for one in listed)])
        for seen in listed:
            if run.completed_since is not None and seen.state in _NOT_STARTED:
                events += self._abandoned_job(run, seen, now)
            elif (event := event_if_new(state, seen)) is not None:
                events.append(event)
        shown = {seen.id for seen in listed}
        missing = [job for job in run.open_jobs - shown if self._may_read_job(state, job, now)]
        ask = tuple(sorted(missing)[:ASK_AT_ONCE])
        self._asked.update(dict.fromkeys(ask, now))
        if run.completed_since is not None and not run.open_jobs:
            self._drop_run(key)
        return Findings(tuple(events), ask)

    def _abandoned_job(self, run: _Run, seen: JobObserved, now: Instant) -> list[Event]:
        """Return the event for a queued job of a completed run: GitHub assigns it no runner."""
        if seen.id not in run.open_jobs:
            return []
        # The run must be listed as completed again since then: it may have been re-run.
        if run.listed_at - run.seen_queued_at.setdefault(seen.id, now) < ABANDONED_AFTER:
            return []
        return [JobAbandoned(now, seen.id, "GitHub shows it as queued and its run as completed")]

    def _may_read_job(self, state: LedgerState, job_id: JobId, now: Instant) -> bool:
        job = state.jobs.get(job_id)
        if job is None or job.state is JobState.COMPLETED or job_id in self._asked:
            return False
        return now - job.updated_at > ABANDONED_AFTER  # a list may be older than a fresh job

    def note_activity(self, repository: str, at: Instant, state: LedgerState) -> None:
        """Watch a repository that showed activity, if a scope of this account covers it."""
        covering = scope_of(state.catalogue, repository)
        known_at = self._repositories.get(repository, -1.0)
        if known_at < at and covering is not None and covering.key in self._scopes:
            self._seen(repository, at)

    def _seen(self, name: str, at: Instant) -> None:
        self._repositories[name] = at
        self._names[name.lower()] = name

    def _name(self, repository: str) -> str:
        """Return the known spelling of a repository's name, which GitHub compares without case."""
        return self._names.get(repository.lower(), repository)

    def _drop_repository(self, name: str) -> None:
        self._repositories.pop(name, None)
        self._names.pop(name.lower(), None)
        for kind in _OF_REPOSITORIES:
            self._turns.pop(Read(kind, name), None)

    def _drop_unwatched_runs(self, state: LedgerState, scope: str) -> None:
        """Drop runs of unwatched repositories, because no list would show that they completed."""
        unwatched = [
            key
            for key, run in self._runs.items()
            if key[0] not in self._repositories
            and not run.open_jobs
            and _covers(state, key[0], scope)
        ]
        for key in unwatched:
            self._drop_run(key)

    def _drop_run(self, key: RunKey) -> None:
        self._runs.pop(key, None)
        for kind in (Kind.JOBS, Kind.RUN):
            self._turns.pop(Read(kind, *key), None)


def _covers(state: LedgerState, repository: str, scope: str) -> bool:
    covering = scope_of(state.catalogue, repository)
    return covering is not None and covering.key == scope


def event_if_new(state: LedgerState, seen: JobObserved) -> JobObserved | None:
    """Return a listed job as an event if the ledger does not know its state yet, otherwise None."""
    job = state.jobs.get(seen.id)
    if job is None:
        wanted = state.class_of(seen.repository, seen.labels) is not None
        return seen if wanted and seen.state in _OPEN else None
    if job.state is JobState.COMPLETED or job.disputed:
        return None
    if seen.state in _NOT_STARTED and job.state in _NOT_STARTED:
        # The order of the two states is unknown. As a webhook's event, it makes the planner read the job.
        return replace(seen, read=False) if seen.state is not job.state else None
    return seen if _is_ahead(seen, job) else None


def run_origins(
    state: LedgerState, listed: Sequence[ListedRun], now: Instant
) -> tuple[RunRead, ...]:
    """Return an event for each listed run that is new to the ledger, with where it comes from.

    Omits completed runs, unless a queued job waits until the controller knows this of its run.
    """
    return tuple(
        RunRead(now, run.id, run.origin)
        for run in listed
        if run.origin is not None
        and run.id not in state.run_origins
        and (run.id in state.unread or not run.completed)
    )


def _is_ahead(seen: JobObserved, job: Job) -> bool:
    if seen.state is JobState.COMPLETED:
        return True
    if seen.state is not JobState.IN_PROGRESS:
        return False
    return job.state in _NOT_STARTED or (job.runner_name is None and seen.runner_name is not None)
