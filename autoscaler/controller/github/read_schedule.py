"""Chooses which of GitHub's lists to read next, from when each was last read. Pure.

Runs that were never read come first. Then come the reads that are latest relative to their intervals;
the newest runs of active repositories and changed runs have priority. If there are too few calls, all
other reads become later in the same proportion. A read that fails repeatedly is tried less often.

With a list of runs every 40 s and each active run's jobs every 45 s, a job is seen within a minute after
it is queued. 20 repositories with 75 runs take about 150 calls a minute, with 9 runs 55.
"""

import heapq
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from autoscaler.model.backoff import Backoff
from autoscaler.model.identifiers import Instant, Seconds


class Kind(StrEnum):
    """What a read lists.

    repositories  the repositories of a scope
    created       the newest repositories of an organization's scope
    runners       the registrations of a scope
    newest        a repository's newest 100 runs, which include new and changed ones
    queued, in_progress, waiting
                  a repository's runs in that state, including those older than the newest 100
    jobs          a run's jobs
    run           the run itself: it may be completed although a job of it is shown as queued
    """

    REPOSITORIES = "repositories"
    CREATED = "created"
    RUNNERS = "runners"
    NEWEST = "newest"
    QUEUED = "queued"
    IN_PROGRESS = "in_progress"
    WAITING = "waiting"
    JOBS = "jobs"
    RUN = "run"


BY_STATUS = (Kind.QUEUED, Kind.IN_PROGRESS, Kind.WAITING)

INTERVALS: Mapping[Kind, Seconds] = {
    Kind.REPOSITORIES: 300.0,
    Kind.CREATED: 20.0,
    Kind.RUNNERS: 300.0,
    Kind.NEWEST: 40.0,
    Kind.QUEUED: 180.0,
    Kind.IN_PROGRESS: 600.0,
    Kind.WAITING: 600.0,
    Kind.JOBS: 45.0,
    Kind.RUN: 600.0,
}
"""How often each kind is read if there are enough calls."""

RUNNERS_SOON: Seconds = 60.0
"""How often a scope's registrations are read while some seem to have no machine, or after a start while
a machine that has sent nothing since may be running a job."""

CHANGED_EVERY: Seconds = 15.0
"""How often the jobs of a run are read while GitHub shows the run as changed each time."""

FIRST_AGAIN: Seconds = 15.0
"""How soon a first read that failed is tried again: nothing it would list is known before."""

AHEAD = 30.0
"""Factor by which lists of new and changed runs have priority over the rest."""

ACTIVE_FOR: Seconds = 900.0
"""How long after its last push, run or job a repository counts as active."""

INACTIVE_PER_SECOND = 4.0
"""How many inactive repositories are read a second: most of these answers are 304, which is free."""


EACH_CALL: Seconds = 6.0
"""Minimum interval of a list for each call that it took, which allows it 600 calls an hour."""

SELDOM: Seconds = 900.0
"""Longest interval between attempts of a read that always fails."""

UNLISTED_FOR: Seconds = 700.0
"""A run that no list has shown for this long is read by itself."""


class Read(NamedTuple):
    """One read. `of` is a scope or a repository. There may be tens of thousands."""

    kind: Kind
    of: str
    run: int = 0


@dataclass(frozen=True, slots=True)
class Turn:
    """When a read was last tried, and when it last succeeded (`read_at`, None: never).

    `failures` counts its own failures since then. `calls` is the number of answers of the last success.
    """

    tried_at: Instant
    read_at: Instant | None = None
    failures: int = 0
    calls: int = 1


@dataclass(slots=True)
class KnownRun:
    """A run that is not known to be completed. `listed_at`: when a list last showed it.

    `changed`: it changed since its jobs were read.
    """

    known_at: Instant
    listed_at: Instant
    changed: bool = False


@dataclass(frozen=True, slots=True)
class Known:
    """The scopes, repositories and runs of one account, and the last turn of each read.

    `scopes`: whether each scope's registrations are read sooner than usual. `repositories`: when each
    last showed activity. `runs`: by repository and id.
    """

    began_at: Instant
    scopes: Mapping[str, bool] = field(default_factory=dict)
    repositories: Mapping[str, Instant] = field(default_factory=dict)
    runs: Mapping[tuple[str, int], KnownRun] = field(default_factory=dict)
    turns: Mapping[Read, Turn] = field(default_factory=dict)

    def read_at(self, read: Read, otherwise: Instant) -> Instant:
        """Return when it was last read successfully, or `otherwise` if never."""
        turn = self.turns.get(read)
        return otherwise if turn is None or turn.read_at is None else turn.read_at


def next_reads(
    known: Known, now: Instant, most: int, under_way: AbstractSet[Read] = frozenset()
) -> list[Read]:
    """Return up to `most` reads that are due and not under way, the most urgent first."""
    due = (
        (one.urgency, -number, one.read)
        for number, one in enumerate(_candidates(known, now))
        if one.lateness >= 1.0 and one.read not in under_way
    )
    # The number breaks ties in the order of the candidates, so that reads are never compared.
    return [read for _, _, read in heapq.nlargest(max(0, most), due)]


def due_runner_lists(known: Known, now: Instant, under_way: AbstractSet[Read]) -> list[Read]:
    """Return the lists of runners that are due if they are read every `RUNNERS_SOON`, and not under way."""
    reads = [Read(Kind.RUNNERS, scope) for scope in known.scopes]
    late = [read for read in reads if _lateness(known, read, now, RUNNERS_SOON) >= 1.0]
    return [read for read in late if read not in under_way]


def staleness(known: Known, now: Instant) -> Seconds:
    """Return the age in seconds of the oldest read of an active repository's runs or an active run's jobs.

    While no repository can be read, none becomes inactive. Before the first list of repositories, the age
    counts from the start. While new repositories cannot be listed, it counts from their last list, if that
    is older.
    """
    oldest = now
    for scope in known.scopes:
        if known.read_at(Read(Kind.REPOSITORIES, scope), -1.0) < 0.0:
            oldest = known.began_at
        created = Read(Kind.CREATED, scope)
        if created in known.turns and known.turns[created].failures:
            oldest = min(oldest, known.read_at(created, known.began_at))
    for (repository, number), run in known.runs.items():
        oldest = min(oldest, known.read_at(Read(Kind.JOBS, repository, number), run.known_at))
    read_at = {
        repository: known.read_at(Read(Kind.NEWEST, repository), known.began_at)
        for repository in known.repositories
    }
    latest = max(read_at.values(), default=now)
    for repository, active_at in known.repositories.items():
        if latest - active_at < ACTIVE_FOR:
            oldest = min(oldest, read_at[repository])
    return now - oldest


class _Candidate(NamedTuple):
    """A possible read. It is due when `lateness` reaches 1.0. `first` goes before all others."""

    read: Read
    lateness: float
    first: bool = False
    ahead: bool = False

    @property
    def urgency(self) -> tuple[bool, float]:
        return self.first, self.lateness * (AHEAD if self.ahead else 1.0)


def _candidates(known: Known, now: Instant) -> Iterator[_Candidate]:
    """Yield every read that is due. Most reads that are not due yet are also yielded, with their lateness."""
    for scope, soon in known.scopes.items():
        repositories = Read(Kind.REPOSITORIES, scope)
        never = repositories not in known.turns
        yield _Candidate(repositories, _lateness(known, repositories, now), first=never)
        created = Read(Kind.CREATED, scope)
        if scope.startswith("org:") and _is_read(known, repositories):
            yield _Candidate(created, _lateness(known, created, now), ahead=True)
        runners = Read(Kind.RUNNERS, scope)
        every = RUNNERS_SOON if soon else None
        yield _Candidate(runners, _lateness(known, runners, now, every))
    for (repository, number), run in known.runs.items():
        jobs = Read(Kind.JOBS, repository, number)
        if jobs not in known.turns:
            yield _Candidate(jobs, 1.0, first=True)
        else:
            lateness = _lateness(known, jobs, now, CHANGED_EVERY if run.changed else None)
            if lateness >= 1.0:  # few of them are due at once, and there may be thousands
                yield _Candidate(jobs, lateness, ahead=run.changed)
        if now - run.listed_at > UNLISTED_FOR:
            the_run = Read(Kind.RUN, repository, number)
            yield _Candidate(the_run, _lateness(known, the_run, now))
    yield from _of_repositories(known, now)


def _is_read(known: Known, read: Read) -> bool:
    """Return True if the last attempt succeeded."""
    turn = known.turns.get(read)
    return turn is not None and turn.read_at is not None and not turn.failures


def _of_repositories(known: Known, now: Instant) -> Iterator[_Candidate]:
    active = {name for name, at in known.repositories.items() if now - at < ACTIVE_FOR}
    quiet = len(known.repositories) - len(active)
    every = max(INTERVALS[Kind.NEWEST], quiet / INACTIVE_PER_SECOND)
    for repository in known.repositories:
        newest = Read(Kind.NEWEST, repository)
        if repository not in active:
            if (lateness := _lateness(known, newest, now, every)) >= 1.0:
                yield _Candidate(newest, lateness)
            continue
        yield _Candidate(newest, _lateness(known, newest, now), ahead=True)
        for kind in BY_STATUS:
            read = Read(kind, repository)
            if (lateness := _lateness(known, read, now)) >= 1.0:
                yield _Candidate(read, lateness)


def _lateness(known: Known, read: Read, now: Instant, every: Seconds | None = None) -> float:
    """Return how late a read is: 1.0 when it is due, 2.0 an interval later."""
    interval = INTERVALS[read.kind] if every is None else every
    turn = known.turns.get(read)
    if turn is None:
        return 1.0 + (now - known.began_at) / interval
    # There may be thousands of inactive repositories, so those keep their interval.
    if turn.read_at is None and interval <= INTERVALS[read.kind]:
        interval = min(interval, FIRST_AGAIN)
    interval = max(interval, EACH_CALL * turn.calls)
    if turn.failures > 1:
        interval = Backoff(interval, max(interval, SELDOM)).delay(turn.failures - 1)
    return (now - turn.tried_at) / interval
