"""The history of a job or a machine: its stages, what it waited for, and which launches failed meanwhile.

No machine is launched for a certain job, and no reason is recorded for one. So the reasons are those of the
jobs with the same labels, and the failed launches those of the job's SKUs, from when the job was queued until
it started.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from autoscaler.model.changes import FailedLaunch, HistoryRow, failed_launch_of
from autoscaler.model.identifiers import Instant, Seconds
from autoscaler.model.jobs.job import Admission, Job, JobState
from autoscaler.model.reasons.table import WaitCode


@dataclass(frozen=True, slots=True)
class WaitedFor:
    """One reason why a job waited. `end` is None while it still does. `seconds` is how long."""

    code: str
    message: str
    begin: Instant
    end: Instant | None
    seconds: float


@dataclass(frozen=True, slots=True)
class FailedTries:
    """Launches that failed in the same way: `count` of them, the first and the last with its request."""

    sku: str
    where: str
    code: str
    message: str
    count: int
    first_at: Instant
    last_at: Instant
    launch_request: str


@dataclass(frozen=True, slots=True)
class Past:
    """What the kept history says about the wait of a job, oldest first."""

    waited_for: tuple[WaitedFor, ...] = ()
    failed_launches: tuple[FailedTries, ...] = ()


_MILESTONES = (
    ("machine", "requested", WaitCode.MACHINE_BOOTING, "its machine was launched and booted"),
    ("machine", "ready", WaitCode.MACHINE_READY, "its machine was ready; its runner registered"),
    ("runner", "listening", WaitCode.RUNNER_IDLE, "its runner was idle; GitHub assigned the job"),
)
"""Events after which a machine of the job's own was on its way, with the code of a wait for it."""

_DECISIONS = {
    "disputed": WaitCode.JOB_UNCONFIRMED,
    "on_hold": WaitCode.NOT_ASSIGNED,
    **{one.value: WaitCode(one.value) for one in Admission if one is not Admission.ADMITTED},
}
"""Events of a job after which GitHub or `access` had to decide, with the code of a wait for it."""

_SAY_NOTHING = frozenset({"passed_over"})


def waited_until(job: Job, now: Instant) -> Instant:
    """Return when the wait of a job ended, or `now` if it still waits."""
    if job.started_at is not None:
        return job.started_at
    if job.state is JobState.COMPLETED:
        return job.completed_at or job.updated_at
    return now


def past_of(
    job: Job,
    own: Sequence[HistoryRow],
    of_class: Sequence[HistoryRow],
    failed: Iterable[HistoryRow],
    now: Instant,
) -> Past:
    """Return what a job waited for.

    `own` has the history of the job and its machine, `of_class` the reasons of its demand class, `failed` the
    failed launches of its SKUs.
    """
    begin, end = job.queued_at, waited_until(job, now)
    on_its_way = [
        (row.at, row.event, code, message)
        for kind, event, code, message in _MILESTONES
        for row in own
        if (row.kind, row.event) == (kind, event) and begin <= row.at <= end
    ]
    blocked_until = min((at for at, *_ in on_its_way), default=end)
    spells = [
        *_blocked(of_class, begin, blocked_until),
        *_spells([(at, code, message) for at, _, code, message in sorted(on_its_way)], end),
        *_decisions(own, begin, end),
    ]
    is_over = job.state is not JobState.QUEUED
    return Past(
        tuple(
            WaitedFor(
                code, message, at, None if until >= now and not is_over else until, until - at
            )
            for at, until, code, message in sorted(spells)
        ),
        tuple(_alike(failed_launch_of(row) for row in failed if begin <= row.at <= end)),
    )


_Spell = tuple[Instant, Instant, str, str]


def _blocked(rows: Sequence[HistoryRow], begin: Instant, end: Instant) -> Iterator[_Spell]:
    """Yield the reasons of a class between two moments. A row without a code: all its jobs had a machine."""
    steps = [(row.at, row.code, row.detail) for row in sorted(rows, key=lambda one: one.at)]
    for at, until, code, message in _spells(steps, end):
        if code and until > begin and at < end:
            yield max(at, begin), until, code, message


def _decisions(rows: Iterable[HistoryRow], begin: Instant, end: Instant) -> Iterator[_Spell]:
    steps = [
        (max(row.at, begin), _DECISIONS.get(row.event, ""), row.detail)
        for row in rows
        if row.kind == "job" and row.event not in _SAY_NOTHING and row.at <= end
    ]
    return (spell for spell in _spells(steps, end) if spell[2])


def _spells(steps: Sequence[tuple[Instant, str, str]], end: Instant) -> Iterator[_Spell]:
    """Yield each step with its end, which is the begin of the next one or `end`."""
    for place, (at, code, message) in enumerate(steps):
        until = min(steps[place + 1][0], end) if place + 1 < len(steps) else end
        if until > at:
            yield at, until, code, message


def _alike(launches: Iterable[FailedLaunch]) -> list[FailedTries]:
    found: dict[tuple[str, str, str, str], FailedTries] = {}
    for one in sorted(launches, key=lambda launch: launch.at):
        key = (one.sku, one.where, one.code, one.message)
        known = found.get(key) or FailedTries(*key, 0, one.at, one.at, "")
        found[key] = replace(
            known, count=known.count + 1, last_at=one.at, launch_request=one.launch_request
        )
    return list(found.values())


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage. `end` is None while it lasts. `kind` is wait or run."""

    name: str
    begin: Instant
    end: Instant | None
    kind: str

    def seconds(self, now: Instant) -> Seconds:
        """Return how long the stage took, or has lasted until now."""
        return max(0.0, (self.end if self.end is not None else now) - self.begin)


_OF_JOB = (
    ("decide to launch", "machine", "requested", "wait"),
    ("launch", "machine", "launched", "wait"),
    ("boot", "machine", "booted", "wait"),
    ("health checks", "machine", "ready", "wait"),
    ("assign", "runner", "named", "wait"),
    ("register", "runner", "registered", "wait"),
    ("start the runner", "runner", "listening", "wait"),
    ("pick up", "job", "in_progress", "wait"),
    ("run", "job", "completed", "run"),
)
"""The stages of a job in order: each ends with this event of a record of this kind."""

_OF_MACHINE = (
    ("launch", "machine", "launched", "wait"),
    ("boot", "machine", "booted", "wait"),
    ("health checks", "machine", "ready", "wait"),
    ("ready, without a job", "machine", "assigned", "wait"),
    ("assigned", "machine", "exited", "run"),
    ("power off", "machine", "terminating", "wait"),
    ("terminate", "machine", "terminated", "wait"),
)


def job_stages(rows: Sequence[HistoryRow], queued_at: Instant) -> tuple[Stage, ...]:
    """Return the stages of a job from when it was queued.

    Omits stages that ended before the job was queued: a machine of the warm pool had passed them.
    """
    return _stages(rows, queued_at, _OF_JOB)


def machine_stages(rows: Sequence[HistoryRow], created_at: Instant) -> tuple[Stage, ...]:
    """Return the stages of a machine from its launch request."""
    return _stages(rows, created_at, _OF_MACHINE)


def _stages(
    rows: Iterable[HistoryRow], begin: Instant, known: Sequence[tuple[str, str, str, str]]
) -> tuple[Stage, ...]:
    ends: dict[tuple[str, str], Instant] = {}
    for row in rows:
        # The last one counts: a machine may be assigned twice, and a job may be rerun.
        ends[row.kind, row.event] = row.at
    last = max(
        (place for place, (_, kind, event, _) in enumerate(known) if (kind, event) in ends),
        default=-1,
    )
    stages = []
    at = begin
    for name, kind, event, sort in known[: last + 1]:
        end = ends.get((kind, event))
        if end is None or end <= at:
            continue
        stages.append(Stage(name, at, end, sort))
        at = end
    if last + 1 < len(known) and not _is_over(ends):
        name, _, _, sort = known[last + 1]
        stages.append(Stage(name, at, None, sort))
    return tuple(stages)


def _is_over(ends: Iterable[tuple[str, str]]) -> bool:
    return any(
        key in {("job", "completed"), ("machine", "terminated"), ("machine", "lost")}
        for key in ends
    )
