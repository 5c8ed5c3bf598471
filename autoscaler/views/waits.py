"""Why one job waits: its place in line, and the reason that the last plan gives for it."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autoscaler.model.fleet import Fleet
from autoscaler.model.jobs.demand import DemandClass
from autoscaler.model.jobs.job import Admission, Job, JobState
from autoscaler.model.unmatched import Unmatched
from autoscaler.model.waiting import WaitCode, Waiting, WaitReason
from autoscaler.planner.waiting import not_assigned

Reasons = Mapping[DemandClass, Sequence[Waiting]]
"""`Plan.waiting`."""

_NOT_PLANNED = (WaitReason(WaitCode.NOT_PLANNED, "not planned yet"),)


@dataclass(frozen=True, slots=True)
class UnmatchedReason:
    """Why no SKU serves a job, in the form of a `WaitReason`. It does not end by itself: `until` is None."""

    code: Unmatched
    message: str
    until: None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """Why a job waits.

    The job is number `place` of the `line` jobs with its labels that want a runner, oldest first. Both are 0
    for a job that wants none: GitHub or `access` decides first, or no SKU serves it. `turn` is its place among
    the jobs that wait for the same reason.
    """

    place: int
    line: int
    turn: int
    reasons: tuple[WaitReason | UnmatchedReason, ...]
    blocked: bool

    @property
    def code(self) -> WaitCode | Unmatched:
        """Return the code of the first reason."""
        return self.reasons[0].code


def wait_of(fleet: Fleet, reasons: Reasons, job: Job) -> Wait | None:
    """Return why a job waits, or None if it does not wait for a machine of this fleet. O(log jobs + classes).

    `reasons` may be those of an earlier plan: a job that it did not know has the code `not_planned`.
    """
    demand = job.demand
    if demand is None or job.state is not JobState.QUEUED:
        return None
    runs = reasons.get(demand, ())
    undecided = undecided_by(fleet, job)
    if undecided is None:
        return _in_line(fleet, runs, job, demand)
    found = next((run.reasons for run in runs if run.code is undecided), _NOT_PLANNED)
    if undecided is WaitCode.NOT_ASSIGNED:
        # The class may have several repositories.
        found = (not_assigned(demand, (job.repository,), refused=not job.passed_over),)
    return Wait(0, 0, 0, found, blocked=True)


_ON_HOLD = " is on hold: "
"""Between what is on hold and why, in the messages of `planner.waiting`."""


def in_short(reasons: Sequence[WaitReason | UnmatchedReason]) -> str:
    """Return all reasons as one line. What is on hold for the same reason is named together."""
    held: dict[str, list[str]] = {}
    for reason in reasons:
        what, on_hold, why = reason.message.partition(_ON_HOLD)
        held.setdefault(why if on_hold else reason.message, []).append(what if on_hold else "")
    return "; ".join(
        f"{' and '.join(dict.fromkeys(what))} {'are' if len(what) > 1 else 'is'} on hold: {why}"
        if any(what)
        else why
        for why, what in held.items()
    )


def undecided_by(fleet: Fleet, job: Job) -> WaitCode | None:
    """Return what GitHub or `access` has to decide before a queued job wants a machine, or None."""
    if job.disputed:
        return WaitCode.JOB_UNCONFIRMED
    if job.admission is not Admission.ADMITTED:
        return WaitCode(job.admission.value)
    if job.demand is not None and job.id in fleet.on_hold.get(job.demand, {}):
        return WaitCode.NOT_ASSIGNED
    return None


def _in_line(fleet: Fleet, runs: Sequence[Waiting], job: Job, demand: DemandClass) -> Wait | None:
    queue = fleet.queues.get(demand)
    if queue is None:
        return None
    jobs = queue.values()
    index = bisect_left(jobs, (job.queued_at, job.id), key=lambda one: (one.queued_at, one.id))
    if index == len(jobs) or jobs[index].id != job.id:
        return None
    turn = index + 1
    for run in runs:
        if turn <= run.count:
            return Wait(index + 1, len(jobs), turn, run.reasons, run.blocked)
        turn -= run.count
    return Wait(index + 1, len(jobs), turn, _NOT_PLANNED, blocked=False)
