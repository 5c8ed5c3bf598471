"""The jobs that wait now: why, and which of them are blocked, overdue or the oldest of their SKU."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from autoscaler.model.fleet import Fleet
from autoscaler.model.identifiers import Instant, JobId, SkuName
from autoscaler.model.jobs.demand import DemandClass
from autoscaler.model.jobs.job import Job
from autoscaler.model.reasons.table import DECIDED_BY_ACCESS, WaitCode
from autoscaler.model.reasons.waiting import Waiting
from autoscaler.model.wait_objectives import WaitObjective, objective_of
from autoscaler.planner.waiting import outside_lines
from autoscaler.views.jobs.job import undecided_jobs
from autoscaler.views.jobs.waits import Reasons, Wait, reasons_in_line, undecided_by, wait_of


@dataclass(frozen=True, slots=True)
class Run:
    """Waiting jobs of one class for one reason. For `blocked` of them, something has to be done or to end."""

    demand: DemandClass
    waiting: Waiting
    blocked: int

    @property
    def sku(self) -> SkuName:
        """Return the SKU under which the jobs are counted."""
        return self.demand.skus[0]


@dataclass(frozen=True, slots=True)
class Oldest:
    """The oldest waiting job of a SKU, and why it waits."""

    job: Job
    wait: Wait


@dataclass(frozen=True, slots=True)
class WaitingJobs:
    """The jobs that wait now. A job that `access` refuses waits for no machine, and is in `undecided` only.

    Why the jobs in a line wait is as of the last plan; how many they are, and all else, is of now. `oldest` is
    by SKU. `undecided` stand in no line: GitHub or `access` decides about them.
    """

    runs: tuple[Run, ...]
    undecided: tuple[Job, ...]
    oldest: Mapping[SkuName, Oldest]


_READ_SOON = frozenset({WaitCode.JOB_UNCONFIRMED, WaitCode.RUN_UNKNOWN})
"""GitHub is asked about these jobs. The question is a fault only if the answer does not come."""


def waiting_jobs(fleet: Fleet, reasons: Reasons) -> WaitingJobs:
    """Return the jobs that wait. `reasons` are those of the last plan. O(classes), and see `undecided_jobs`."""
    undecided = tuple(undecided_jobs(fleet, None))
    unanswered = Counter(
        (job.demand, code)
        for job in undecided
        if (code := undecided_by(fleet, job)) in _READ_SOON
        and fleet.now - _asked_since(fleet, job) >= code.entry.threshold.above
    )
    runs = []
    for demand, queue in fleet.queues.items():
        for places, run in reasons_in_line(reasons.get(demand, ()), len(queue)):
            count = len(places)
            runs.append(Run(demand, replace(run, count=count), count if run.blocked else 0))
    for demand, run in outside_lines(fleet):
        if run.code not in DECIDED_BY_ACCESS:
            blocked = unanswered[demand, run.code] if run.code in _READ_SOON else run.count
            runs.append(Run(demand, run, blocked))
    return WaitingJobs(tuple(runs), undecided, oldest_of(fleet, reasons, undecided))


def _asked_since(fleet: Fleet, job: Job) -> Instant:
    """Return since when GitHub has been asked about a job or its run. A restart asks anew."""
    of_run = fleet.run_questions.get(job.run_id) if job.run_id is not None else None
    question = fleet.reads.get(job.id) if job.disputed else of_run
    return max(question.since if question is not None else job.updated_at, fleet.started_at)


def oldest_of(fleet: Fleet, reasons: Reasons, undecided: Iterable[Job]) -> dict[SkuName, Oldest]:
    """Return the oldest waiting job of each SKU. `undecided` are those that stand in no line. O(classes)."""
    oldest: dict[SkuName, Job] = {}
    firsts = (queue.values()[0] for queue in fleet.queues.values() if len(queue))
    for job in (*firsts, *undecided):
        if job.demand is None or job.admission.is_refusal:
            continue
        known = oldest.get(job.demand.skus[0])
        if known is None or (job.queued_at, job.id) < (known.queued_at, known.id):
            oldest[job.demand.skus[0]] = job
    waits = ((sku, job, wait_of(fleet, reasons, job)) for sku, job in oldest.items())
    return {sku: Oldest(job, wait) for sku, job, wait in waits if wait is not None}


def overdue(
    fleet: Fleet, undecided: Sequence[Job], objectives: tuple[WaitObjective, ...]
) -> dict[str, int]:
    """Return the number of jobs by SKU that have waited for longer than its objective. O(classes log jobs)."""
    found: Counter[str] = Counter()
    for demand, queue in fleet.queues.items():
        if (objective := objective_of(objectives, demand.skus[0])) is not None:
            first_in_time = (fleet.now - objective.seconds, JobId(0))
            found[demand.skus[0]] += bisect_left(queue.keys(), first_in_time)
    for job in undecided:
        if job.demand is None or job.admission.is_refusal:
            continue
        objective = objective_of(objectives, job.demand.skus[0])
        if objective is not None and fleet.now - job.queued_at > objective.seconds:
            found[job.demand.skus[0]] += 1
    return {sku: count for sku, count in found.items() if count}
