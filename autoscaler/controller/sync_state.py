"""What is known of one account's lists at GitHub, and what each answer adds to the ledger.

A list may be a little older than a webhook, so it only carries a job forward; where it contradicts,
the job itself is asked about. It never decides what to read next and asks nobody.
"""

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from autoscaler.controller.ports.github_lists import (
    MOST_REPOSITORIES,
    ListedRepository,
    ListedRun,
)
from autoscaler.controller.sync_schedule import BY_STATUS, Kind, Known, KnownRun, Read, Turn
from autoscaler.ledger.state import LedgerState
from autoscaler.model.demand import scope_of
from autoscaler.model.events import Event, JobAbandoned, JobObserved, RunRead
from autoscaler.model.identifiers import Instant, JobId, Seconds
from autoscaler.model.jobs import Job, JobState

GHOST_AFTER: Seconds = 60.0
"""How long after a job is first shown as queued in a run that is over the run must be so still."""

UNLISTED_FOR: Seconds = 700.0
"""A run that no list has shown for this long is looked at by itself."""

ASK_AGAIN: Seconds = 300.0
ASK_AT_ONCE = 3
"""How many of a run's jobs that its list does not show are asked about after one reading."""

MOST_RUNS = 20_000

_OF_REPOSITORIES = (Kind.NEWEST, *BY_STATUS)
_NO_JOBS: frozenset[JobId] = frozenset()
_OPEN = frozenset({JobState.QUEUED, JobState.WAITING, JobState.IN_PROGRESS})
_NOT_STARTED = frozenset({JobState.QUEUED, JobState.WAITING})

RunKey = tuple[str, int]


@dataclass(slots=True)
class _Run:
    """A run that is, or was until lately, at work. `open_jobs` are the ledger's open ones."""

    known_at: Instant
    listed_at: Instant
    mark: str = ""
    changed: bool = False
    completed_since: Instant | None = None
    open_jobs: frozenset[JobId] = _NO_JOBS
    ghosts: dict[JobId, Instant] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Findings:
    """Facts for the ledger, and jobs that GitHub must be asked about one by one."""

    events: tuple[Event, ...] = ()
    ask: tuple[JobId, ...] = ()


class SyncState:
    """The memory of one account's sync. Lost with the process, and read again by the next."""

    def __init__(self, account: str, scopes: Iterable[str], began_at: Instant) -> None:
        self.account = account
        self._began_at = began_at
        self._scopes = dict.fromkeys(scopes, False)
        self._repositories: dict[str, Instant] = {}
        self._names: dict[str, str] = {}
        self._left_out: dict[str, int] = {}
        self._runs: dict[RunKey, _Run] = {}
        self._turns: dict[Read, Turn] = {}
        self._asked: dict[JobId, Instant] = {}

    def known(self, now: Instant) -> Known:
        """What the schedule goes by."""
        runs = {
            key: KnownRun(run.known_at, run.changed, now - run.listed_at > UNLISTED_FOR)
            for key, run in self._runs.items()
        }
        return Known(self._began_at, self._scopes, self._repositories, runs, self._turns)

    @property
    def left_out(self) -> int:
        """How many repositories are too many to be looked at."""
        return sum(self._left_out.values())

    def was_read(self, read: Read, began_at: Instant, calls: int = 1) -> None:
        """It was read, by so many answers that counted."""
        self._had_its_turn(read, Turn(began_at, began_at, calls=calls))

    def was_not_read(self, read: Read, began_at: Instant, strike: bool) -> int:
        """It could not be read; how often by now, of its own fault. `strike`: this time too."""
        last = self._turns.get(read, Turn(began_at))
        failures = last.failures + strike
        self._had_its_turn(read, replace(last, tried_at=began_at, failures=failures))
        return failures

    def _had_its_turn(self, read: Read, turn: Turn) -> None:
        # Not kept of what is over by now.
        if read.run and (read.of, read.run) not in self._runs:
            return
        if read.kind in _OF_REPOSITORIES and read.of not in self._repositories:
            return
        self._turns[read] = turn

    def list_soon(self, scope: str, soon: bool) -> None:
        """Whether a scope's registrations are to be read again sooner than usual."""
        self._scopes[scope] = soon

    def look_at(self, state: LedgerState, now: Instant) -> None:
        """Take over what the ledger has heard of. O(repositories and runs), however many jobs."""
        activity = state.activity.of(self.account)
        for known in activity.repositories.values():
            self.saw(self._name(known.name), known.updated_at, state)
        open_jobs: dict[RunKey, frozenset[JobId]] = {}
        for (repository, number), jobs in activity.runs.items():
            name = self._names.get(repository) or activity.repositories[repository].name
            # A copy: the ledger replaces its own with each change of a job.
            open_jobs[name, number] = frozenset(jobs)
        for key in open_jobs:
            if key not in self._runs and len(self._runs) < MOST_RUNS:
                self._runs[key] = _Run(now, now)
        for key, run in self._runs.items():
            run.open_jobs = open_jobs.get(key, _NO_JOBS)
        self._asked = {job: at for job, at in self._asked.items() if now - at < ASK_AGAIN}

    def listed_repositories(
        self,
        scope: str,
        listed: Sequence[ListedRepository],
        state: LedgerState,
        whole: bool = True,
    ) -> int:
        """These are there; what the scope does not cover, and what is gone, is not looked at.

        How many were too many: those that showed no sign of life for longest. A list that is not
        whole says of none that it is gone; nor is one left that jobs are open in.
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
                self._forget_repository(name)
        for name in alive:  # in the list's order: a set's is another in each process
            if name in found:
                self._seen(name, alive[name])
        self._forget_runs_left_behind(state, scope)
        self._left_out[scope] = len(alive) - len(found)
        return self._left_out[scope]

    def listed_runs(self, repository: str, listed: Sequence[ListedRun], now: Instant) -> None:
        """Remember runs that are not over, and which of the known ones have changed."""
        for seen in listed:
            key = (repository, seen.id)
            run = self._runs.get(key)
            if run is None:
                if seen.completed or len(self._runs) >= MOST_RUNS:
                    continue
                run = self._runs[key] = _Run(now, now, seen.mark)
            run.changed = run.changed or run.mark != seen.mark
            run.mark, run.listed_at = seen.mark, now
            if not seen.completed:
                run.completed_since = None
                run.ghosts.clear()
                if repository in self._repositories:
                    self._repositories[repository] = now
            elif run.completed_since is None:
                run.completed_since = now

    def run_is_not_there(self, repository: str, run_id: int, now: Instant) -> None:
        """404: deleted, or not shown to us any more."""
        run = self._runs.get((repository, run_id))
        if run is not None:
            run.listed_at = now
            if not run.open_jobs:
                self._forget_run((repository, run_id))

    def listed_jobs(
        self, key: RunKey, listed: Sequence[JobObserved], state: LedgerState, now: Instant
    ) -> Findings:
        """What a run's jobs add to the ledger, and which of its jobs they do not tell of."""
        run = self._runs.get(key)
        if run is None:
            return Findings()
        run.changed = False
        events: list[Event] = []
        for seen in listed:
            if run.completed_since is not None and seen.state in _NOT_STARTED:
                events += self._ghost(run, seen, now)
            elif (event := news(state, seen)) is not None:
                events.append(event)
        shown = {seen.id for seen in listed}
        missing = [job for job in run.open_jobs - shown if self._may_ask(state, job, now)]
        ask = tuple(sorted(missing)[:ASK_AT_ONCE])
        self._asked.update(dict.fromkeys(ask, now))
        if run.completed_since is not None and not run.open_jobs:
            self._forget_run(key)
        return Findings(tuple(events), ask)

    def _ghost(self, run: _Run, seen: JobObserved, now: Instant) -> list[Event]:
        """A job that GitHub shows as queued although its run is over: no runner will be given it."""
        if seen.id not in run.open_jobs:
            return []
        # Shown as over since: what was known of the run may be older than a re-run of it.
        if run.listed_at - run.ghosts.setdefault(seen.id, now) < GHOST_AFTER:
            return []
        return [JobAbandoned(now, seen.id, "GitHub shows it queued, and its run completed")]

    def _may_ask(self, state: LedgerState, job_id: JobId, now: Instant) -> bool:
        job = state.jobs.get(job_id)
        if job is None or job.state is JobState.COMPLETED or job_id in self._asked:
            return False
        return now - job.updated_at > GHOST_AFTER  # a list may be older than a fresh job

    def saw(self, repository: str, at: Instant, state: LedgerState) -> None:
        """Look at a repository that showed a sign of life, if a scope here covers it."""
        covering = scope_of(state.catalogue, repository)
        known_at = self._repositories.get(repository, -1.0)
        if known_at < at and covering is not None and covering.key in self._scopes:
            self._seen(repository, at)

    def _seen(self, name: str, at: Instant) -> None:
        self._repositories[name] = at
        self._names[name.lower()] = name

    def _name(self, repository: str) -> str:
        """The spelling that it is known by: GitHub's names know no case."""
        return self._names.get(repository.lower(), repository)

    def _forget_repository(self, name: str) -> None:
        self._repositories.pop(name, None)
        self._names.pop(name.lower(), None)
        for kind in _OF_REPOSITORIES:
            self._turns.pop(Read(kind, name), None)

    def _forget_runs_left_behind(self, state: LedgerState, scope: str) -> None:
        """Of repositories that are looked at no more: nobody could say that they are over."""
        left = [
            key
            for key, run in self._runs.items()
            if key[0] not in self._repositories
            and not run.open_jobs
            and _covers(state, key[0], scope)
        ]
        for key in left:
            self._forget_run(key)

    def _forget_run(self, key: RunKey) -> None:
        self._runs.pop(key, None)
        for kind in (Kind.JOBS, Kind.RUN):
            self._turns.pop(Read(kind, *key), None)


def _covers(state: LedgerState, repository: str, scope: str) -> bool:
    covering = scope_of(state.catalogue, repository)
    return covering is not None and covering.key == scope


def news(state: LedgerState, seen: JobObserved) -> JobObserved | None:
    """What a list says of a job as a fact that the ledger does not have yet, if it is one."""
    job = state.jobs.get(seen.id)
    if job is None:
        wanted = state.class_of(seen.repository, seen.labels) is not None
        return seen if wanted and seen.state in _OPEN else None
    if job.state is JobState.COMPLETED or job.disputed:
        return None
    if seen.state in _NOT_STARTED and job.state in _NOT_STARTED:
        # Which of the two came last cannot be told: said as a webhook would, it is asked about.
        return replace(seen, read=False) if seen.state is not job.state else None
    return seen if _is_ahead(seen, job) else None


def run_origins(
    state: LedgerState, listed: Sequence[ListedRun], now: Instant
) -> tuple[RunRead, ...]:
    """Return which of these runs come from a fork: those at work and those that jobs wait for."""
    return tuple(
        RunRead(now, run.id, run.from_fork)
        for run in listed
        if run.from_fork is not None
        and run.id not in state.run_origins
        and (run.id in state.unread or not run.completed)
    )


def _is_ahead(seen: JobObserved, job: Job) -> bool:
    if seen.state is JobState.COMPLETED:
        return True
    if seen.state is not JobState.IN_PROGRESS:
        return False
    return job.state in _NOT_STARTED or (job.runner_name is None and seen.runner_name is not None)
