"""The commits of one repository against its jobs, as far as the controller knows them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from autoscaler.model.identifiers import Instant
from autoscaler.model.jobs.job import Job, JobState

MOST_COMMITS = 40
MOST_COLUMNS = 60


@dataclass(frozen=True, slots=True)
class Commit:
    """The commit of a workflow run. Both fields are empty if GitHub did not say."""

    sha: str
    branch: str


@dataclass(frozen=True, slots=True)
class Cell:
    """The newest job of one name in one row. `result` is its conclusion, or its state if it has not ended."""

    job: int
    result: str
    attempt: int
    queued_at: Instant
    started_at: Instant | None
    completed_at: Instant | None


@dataclass(frozen=True, slots=True)
class Row:
    """One commit; or one run, if its commit is not known. `cells` are in the order of the columns."""

    commit: Commit
    run_id: int | None
    at: Instant
    cells: tuple[Cell | None, ...]


@dataclass(frozen=True, slots=True)
class Grid:
    """A repository's newest commits, and its jobs by workflow and name. `more_*` are not in it."""

    repository: str
    columns: tuple[tuple[str, str], ...]
    rows: tuple[Row, ...]
    more_columns: int
    more_rows: int


_UNKNOWN = Commit("", "")


def grid(repository: str, jobs: Iterable[Job], commits: Mapping[int, Commit]) -> Grid:
    """Return the newest commits with their jobs. `commits` are those of runs. O(jobs)."""
    wanted = repository.lower()
    rows: dict[str, dict[tuple[str, str], Job]] = {}
    keys: dict[str, tuple[Commit, int | None]] = {}
    for job in jobs:
        if job.repository.lower() != wanted:
            continue
        commit = commits.get(job.run_id, _UNKNOWN) if job.run_id is not None else _UNKNOWN
        key = commit.sha or f"run {job.run_id}"
        keys.setdefault(key, (commit, job.run_id))
        cells = rows.setdefault(key, {})
        known = cells.get((job.workflow, job.name))
        if known is None or (known.run_attempt, known.id) < (job.run_attempt, job.id):
            cells[job.workflow, job.name] = job
    ages = {key: max(job.queued_at for job in cells.values()) for key, cells in rows.items()}
    newest = sorted(rows, key=lambda key: (-ages[key], key))
    shown = newest[:MOST_COMMITS]
    columns = sorted({name for key in shown for name in rows[key]})
    kept = columns[:MOST_COLUMNS]
    return Grid(
        repository,
        tuple(kept),
        tuple(
            Row(*keys[key], ages[key], tuple(_cell(rows[key].get(name)) for name in kept))
            for key in shown
        ),
        len(columns) - len(kept),
        len(newest) - len(shown),
    )


def _cell(job: Job | None) -> Cell | None:
    if job is None:
        return None
    result = job.conclusion if job.state is JobState.COMPLETED else job.state.value
    return Cell(
        job.id,
        result or "unknown",
        job.run_attempt,
        job.queued_at,
        job.started_at,
        job.completed_at,
    )


@dataclass(frozen=True, slots=True)
class RepositoryView:
    """How many jobs of a repository have a SKU, by what they do.

    As in the fleet's status, jobs without a SKU, jobs that wait for an approval and jobs that
    `access` refuses do not count.
    """

    repository: str
    waiting: int
    running: int
    ended: int


def repositories(jobs: Iterable[Job]) -> list[RepositoryView]:
    """Return the repositories of these jobs, those with the most open jobs first. O(jobs)."""
    counts: dict[str, list[int]] = {}
    names: dict[str, str] = {}
    for job in jobs:
        key = job.repository.lower()
        names.setdefault(key, job.repository)
        known = counts.setdefault(key, [0, 0, 0])
        waits = job.state is JobState.QUEUED
        if job.demand is None or (waits and job.admission.is_refusal):
            continue
        if job.state in _PLACE:
            known[_PLACE[job.state]] += 1
    views = (RepositoryView(names[key], *known) for key, known in counts.items())
    return sorted(
        views, key=lambda one: (-one.waiting - one.running, -one.ended, one.repository.lower())
    )


_PLACE = {JobState.QUEUED: 0, JobState.IN_PROGRESS: 1, JobState.COMPLETED: 2}
