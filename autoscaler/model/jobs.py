"""The Job record: what GitHub wants, and how one job may move between its states."""

from dataclasses import dataclass
from enum import StrEnum

from autoscaler.model.demand import DemandClass
from autoscaler.model.identifiers import Instant, JobId, RunnerName


class JobState(StrEnum):
    """GitHub's own words for a job's state."""

    WAITING = "waiting"
    QUEUED = "queued"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"


JOB_TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    JobState.WAITING: frozenset({JobState.QUEUED, JobState.IN_PROGRESS, JobState.COMPLETED}),
    JobState.QUEUED: frozenset({JobState.WAITING, JobState.IN_PROGRESS, JobState.COMPLETED}),
    JobState.IN_PROGRESS: frozenset({JobState.COMPLETED}),
    JobState.COMPLETED: frozenset(),
}


@dataclass(slots=True)
class Job:
    """One job at GitHub. Times are Unix seconds.

    `disputed` holds while it is in doubt and has not been read at GitHub since, and nothing is
    launched for it: GitHub has said both `queued` and `waiting`, the store is older than the world,
    or a runner that left may have run it. `passed_over` names the
    runners that fitted this job and were not given it; two of them hold the job back until
    `probe_at`.
    """

    id: JobId
    repository: str
    labels: tuple[str, ...]
    demand: DemandClass | None
    state: JobState
    queued_at: Instant
    updated_at: Instant
    name: str = ""
    workflow: str = ""
    run_id: int | None = None
    run_attempt: int = 1
    runner_name: RunnerName | None = None
    started_at: Instant | None = None
    completed_at: Instant | None = None
    conclusion: str | None = None
    disputed: bool = False
    read_at: Instant | None = None
    passed_over: tuple[RunnerName, ...] = ()
    probe_at: Instant | None = None
