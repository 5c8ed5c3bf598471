"""Which of GitHub's lists to read next, from what is known and when it was read. Pure.

Runs never read go first; then what is latest by its own interval, the newest runs of active
repositories and changed runs ahead of the rest. Where calls are too few for all, the rest gets
later in the same proportion, each in its turn, and nothing is forgotten. What fails again and again
is tried ever less often. It never decides how many calls there are, nor what an answer means.

With a list of runs every 40 s and each active run's jobs every 45 s, a job is seen within a
minute of its `queued`: 20 repositories with 75 runs take about 150 calls a minute, with 9 runs 55.
"""

import heapq
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from autoscaler.model.identifiers import Instant, Seconds


class Kind(StrEnum):
    """What is read.

    repositories  those of a scope
    created       the newest repositories of an organization's scope
    runners       the registrations of a scope
    newest        a repository's newest 100 runs: new and changed ones are among them
    queued, in_progress, waiting
                  its runs in that state: those that 100 newer ones hide
    jobs          a run's jobs
    run           the run itself: whether it is over although a job of it is said to be queued
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
"""How often each is read while there are calls enough."""

RUNNERS_SOON: Seconds = 60.0
"""How often a scope's registrations are read while some of them seem to have lost their machine, or
after a start while a machine that has not spoken since may be at work."""

CHANGED_EVERY: Seconds = 15.0
"""How often the jobs of a run are read that GitHub shows as changed each time."""

FIRST_AGAIN: Seconds = 15.0
"""How soon is tried again what was never read yet: until then all behind it is unknown."""

AHEAD = 30.0
"""By how much what finds new and changed runs, and the changed ones, are ahead of the rest."""

ACTIVE_FOR: Seconds = 900.0
"""How long after its last push, run or job a repository counts as active."""

QUIET_PER_SECOND = 4.0
"""How many quiet repositories are looked at in a second: most such answers are 304 and free."""


EACH_CALL: Seconds = 6.0
"""How long a list of many pages is left alone for each call that it took: 600 calls an hour."""

SELDOM: Seconds = 900.0
"""How often at least is tried what always fails."""

_DOUBLINGS = 6


class Read(NamedTuple):
    """One reading. `of` is a scope or a repository. Made and looked up by the ten thousand."""

    kind: Kind
    of: str
    run: int = 0


@dataclass(frozen=True, slots=True)
class Turn:
    """The last turn of a reading. `read_at` is the last that succeeded, None before the first.

    `failures` failed since then, of its own fault; `calls` is how many answers the last one took.
    """

    tried_at: Instant
    read_at: Instant | None = None
    failures: int = 0
    calls: int = 1


class KnownRun(NamedTuple):
    """A run that is not over as far as is known. `changed`: since its jobs were read.

    `doubtful`: a job of it has been queued for so long that the run itself is to be looked at.
    """

    known_at: Instant
    changed: bool = False
    doubtful: bool = False


@dataclass(frozen=True, slots=True)
class Known:
    """What one account's lists are about, and the last turn of each.

    `scopes` says of each whether its registrations are awaited sooner than usual,
    `repositories` when each last showed a sign of life, `runs` are by repository and id.
    """

    began_at: Instant
    scopes: Mapping[str, bool] = field(default_factory=dict)
    repositories: Mapping[str, Instant] = field(default_factory=dict)
    runs: Mapping[tuple[str, int], KnownRun] = field(default_factory=dict)
    turns: Mapping[Read, Turn] = field(default_factory=dict)

    def read_at(self, read: Read, otherwise: Instant) -> Instant:
        """When it was read: `otherwise` if never."""
        turn = self.turns.get(read)
        return otherwise if turn is None or turn.read_at is None else turn.read_at


def next_reads(
    known: Known, now: Instant, most: int, under_way: AbstractSet[Read] = frozenset()
) -> list[Read]:
    """What to read now, the most urgent first; `most` at most, and nothing that is under way."""
    due = (
        (one.urgency, -number, one.read)
        for number, one in enumerate(_candidates(known, now))
        if one.lateness >= 1.0 and one.read not in under_way
    )
    # The number breaks ties in the order of the candidates, so that reads are never compared.
    return [read for _, _, read in heapq.nlargest(max(0, most), due)]


def staleness(known: Known, now: Instant) -> Seconds:
    """How old the oldest picture is: of an active repository's runs, or of an active run's jobs.

    While no repository can be read, none turns quiet; before the first list none is known. While new
    repositories cannot be listed, nothing is known of those since the last such list.
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
    """A reading; its time has come when `lateness` is 1.0. `first` goes before everything else."""

    read: Read
    lateness: float
    first: bool = False
    ahead: bool = False

    @property
    def urgency(self) -> tuple[bool, float]:
        return self.first, self.lateness * (AHEAD if self.ahead else 1.0)


def _candidates(known: Known, now: Instant) -> Iterator[_Candidate]:
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
            every = CHANGED_EVERY if run.changed else None
            yield _Candidate(jobs, _lateness(known, jobs, now, every), ahead=run.changed)
        if run.doubtful:
            doubt = Read(Kind.RUN, repository, number)
            yield _Candidate(doubt, _lateness(known, doubt, now))
    yield from _of_repositories(known, now)


def _is_read(known: Known, read: Read) -> bool:
    """Whether its last turn succeeded."""
    turn = known.turns.get(read)
    return turn is not None and turn.read_at is not None and not turn.failures


def _of_repositories(known: Known, now: Instant) -> Iterator[_Candidate]:
    active = {name for name, at in known.repositories.items() if now - at < ACTIVE_FOR}
    quiet = len(known.repositories) - len(active)
    every = max(INTERVALS[Kind.NEWEST], quiet / QUIET_PER_SECOND)
    for repository in known.repositories:
        newest = Read(Kind.NEWEST, repository)
        if repository not in active:
            yield _Candidate(newest, _lateness(known, newest, now, every))
            continue
        yield _Candidate(newest, _lateness(known, newest, now), ahead=True)
        for kind in BY_STATUS:
            read = Read(kind, repository)
            yield _Candidate(read, _lateness(known, read, now))


def _lateness(known: Known, read: Read, now: Instant, every: Seconds | None = None) -> float:
    """1.0 when its time has come, 2.0 an interval later."""
    interval = INTERVALS[read.kind] if every is None else every
    turn = known.turns.get(read)
    if turn is None:
        return 1.0 + (now - known.began_at) / interval
    # Of quiet repositories there may be thousands: those wait as long as ever.
    if turn.read_at is None and interval <= INTERVALS[read.kind]:
        interval = min(interval, FIRST_AGAIN)
    interval = max(interval, EACH_CALL * turn.calls)
    if turn.failures > 1:
        doubled = interval * 2.0 ** min(turn.failures - 1, _DOUBLINGS)
        interval = min(doubled, max(interval, SELDOM))
    return (now - turn.tried_at) / interval
