"""Lists of jobs, narrowed, counted and in parts.

A list costs what it shows and skips. A filter by repository also reads each job of the list, and the list of
running jobs reads each machine with an assignment.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import merge
from itertools import islice, repeat

from autoscaler.model.fleet import Fleet, Ordered
from autoscaler.model.identifiers import Instant, JobId, Seconds, SkuName
from autoscaler.model.jobs.job import Job, JobState
from autoscaler.model.machines.machine import MachineState
from autoscaler.model.reasons.table import Unmatched
from autoscaler.model.reasons.waiting import Reason
from autoscaler.views.jobs.job import JobView, undecided_jobs, view_of, with_reason
from autoscaler.views.jobs.waits import Reasons, reasons_in_line, undecided_by
from autoscaler.views.listed import Listed, Part

_Key = tuple[Instant, JobId]

_KEYS_AT_ONCE = 256
"""Keys that are read ahead of a line: one at a time would cost twenty times as much."""


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs a list has. An empty value admits every job.

    `repository` is `owner/name`, in upper or lower case. `code` is the code of a job's first reason. A job is
    `older_than` some seconds if it has waited longer, or has run longer if it runs.
    """

    sku: SkuName | None = None
    repository: str = ""
    code: str = ""
    older_than: Seconds = 0.0


@dataclass(frozen=True, slots=True)
class _Run:
    """Jobs that wait for the same reason, by their keys, oldest first."""

    code: str
    keys: Iterable[_Key]
    count: int


def waiting_jobs(fleet: Fleet, reasons: Reasons, chosen: JobFilter, part: Part) -> Listed[JobView]:
    """Return the jobs that wait for a machine, oldest first, and their number by reason.

    O(classes x log jobs + rows skipped and shown). O(jobs) with a repository, and if there are jobs that do not
    stand in a line: GitHub or `access` decides about them.
    """
    runs = [*_in_lines(fleet, reasons, chosen), *_undecided(fleet, chosen)]
    found, total, counts = _merged(runs, chosen, part)
    return Listed([view_of(fleet, reasons, fleet.jobs[job]) for job, _ in found], total, counts)


def unmatched_jobs(fleet: Fleet, chosen: JobFilter, part: Part) -> Listed[JobView]:
    """Return the queued jobs that no SKU serves, oldest first, and their number by reason.

    O(log jobs + rows skipped and shown), and O(such jobs) with a repository.
    """
    runs = [
        _run(fleet, code.value, jobs, range(len(jobs)), chosen)
        for code, jobs in fleet.unmatched.items()
    ]
    found, total, counts = _merged(runs, chosen, part)
    rows = [
        with_reason(view_of(fleet, {}, fleet.jobs[job]), Reason(Unmatched(code)))
        for job, code in found
    ]
    return Listed(rows, total, counts)


def running_jobs(fleet: Fleet, reasons: Reasons, chosen: JobFilter, part: Part) -> Listed[JobView]:
    """Return the jobs in progress on this fleet's machines, by SKU: those assigned first come first.

    O(machines assigned).
    """
    since = fleet.now - chosen.older_than
    found = [
        job
        for job in _running(fleet, chosen.sku)
        if _is_of(job, chosen.repository)
        and (not chosen.older_than or (job.started_at or job.queued_at) < since)
    ]
    shown = found[part.skip : part.skip + part.limit]
    return Listed([view_of(fleet, reasons, job) for job in shown], len(found), {})


def _running(fleet: Fleet, sku: SkuName | None) -> Iterator[Job]:
    for name in (sku,) if sku is not None else fleet.catalogue.skus:
        for machine in fleet.machines_in(name, MachineState.ASSIGNED):
            runner = fleet.runners.get(machine.work.runner) if machine.work.runner else None
            job = fleet.jobs.get(runner.job) if runner is not None and runner.job else None
            if job is not None and job.state is JobState.IN_PROGRESS:
                yield job


def _in_lines(fleet: Fleet, reasons: Reasons, chosen: JobFilter) -> Iterator[_Run]:
    for demand, queue in fleet.queues.items():
        if chosen.sku is None or demand.skus[0] == chosen.sku:
            for places, waiting in reasons_in_line(reasons.get(demand, ()), len(queue)):
                yield _run(fleet, waiting.code.value, queue, places, chosen)


def _undecided(fleet: Fleet, chosen: JobFilter) -> Iterator[_Run]:
    since = fleet.now - chosen.older_than
    found: dict[str, list[_Key]] = {}
    for job in undecided_jobs(fleet, chosen.sku):
        if _is_of(job, chosen.repository) and (not chosen.older_than or job.queued_at < since):
            code = undecided_by(fleet, job)
            found.setdefault(code.value if code is not None else "", []).append(_key(job))
    for of, keys in found.items():
        yield _Run(of, sorted(keys), len(keys))


def _run(
    fleet: Fleet, code: str, line: Ordered[JobId, Job], places: range, chosen: JobFilter
) -> _Run:
    """Return the jobs at these places of a line that the filter admits, whatever their reason."""
    if chosen.older_than:
        # A key with the moment alone is before all jobs that were queued then.
        old = bisect_left(line.keys(), (fleet.now - chosen.older_than, JobId(-1)))
        places = range(places.start, max(places.start, min(places.stop, old)))
    if not chosen.repository:
        return _Run(code, _keys(line, places), len(places))
    jobs = line.values()[places.start : places.stop]
    keys = [_key(job) for job in jobs if _is_of(job, chosen.repository)]
    return _Run(code, keys, len(keys))


def _keys(line: Ordered[JobId, Job], places: range) -> Iterator[_Key]:
    for at in range(places.start, places.stop, _KEYS_AT_ONCE):
        yield from line.keys()[at : min(at + _KEYS_AT_ONCE, places.stop)]


def _merged(
    runs: Iterable[_Run], chosen: JobFilter, part: Part
) -> tuple[list[tuple[JobId, str]], int, Counter[str]]:
    """Return this part of the jobs with their codes, the number of all jobs, and that by code."""
    counts: Counter[str] = Counter()
    shown: list[Iterator[tuple[_Key, str]]] = []
    for run in runs:
        if run.count:
            counts[run.code] += run.count
            if chosen.code in ("", run.code):
                shown.append(zip(run.keys, repeat(run.code)))
    total = counts[chosen.code] if chosen.code else counts.total()
    found = islice(merge(*shown), part.skip, part.skip + part.limit)
    return [(job, code) for (_, job), code in found], total, counts


def _is_of(job: Job, repository: str) -> bool:
    return not repository or job.repository.lower() == repository.lower()


def _key(job: Job) -> _Key:
    return job.queued_at, job.id
