"""The stages of a job or a machine, with their durations, from its history."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from autoscaler.model.changes import HistoryRow
from autoscaler.model.identifiers import Instant, Seconds


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
