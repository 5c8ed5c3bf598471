"""The Job record: what GitHub wants, and how one job may move between its states."""

from dataclasses import dataclass
from enum import StrEnum

from autoscaler.model.demand import DemandClass
from autoscaler.model.identifiers import Instant, JobId, RunnerName, Seconds


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


class Admission(StrEnum):
    """Whether a job may use the SKUs of its class; the values are reason codes.

    GitHub does not say in a job which repository its run's commit comes from: the run says it.
    """

    ADMITTED = "admitted"
    UNREAD = "head_repository_unknown"
    FORK = "fork_not_allowed"


_DAY: Seconds = 86_400.0

QUEUED_AT_MOST: Seconds = _DAY
"""GitHub fails a job that was queued for a day (docs.github.com: Actions limits)."""

OPEN_AT_MOST: dict[JobState, Seconds] = {
    JobState.WAITING: 35 * _DAY,
    JobState.QUEUED: QUEUED_AT_MOST,
    JobState.IN_PROGRESS: 5 * _DAY + 3600.0,
}
"""How long a job is open in a state: its run lives for 35 days, and it works for 5 (the same page), with
an hour for its end to be told."""


@dataclass(slots=True)
class Job:
    """One job at GitHub. Times are Unix seconds.

    `disputed` holds while it is in doubt and has not been read at GitHub since, and nothing is
    launched for it: GitHub has said both `queued` and `waiting`, the store is older than the world,
    or a runner that left may have run it. `passed_over` names the
    runners that fitted this job and were not given it; two of them hold the job back until
    `probe_at`. `from_fork` says whether its run's head repository is another one, None where GitHub
    was not asked yet; only an admitted job is demand.
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
    from_fork: bool | None = None
    admission: Admission = Admission.ADMITTED

    @property
    def expires_at(self) -> Instant | None:
        """When GitHub has ended it at the latest, whoever failed to tell; None where it has ended."""
        limit = OPEN_AT_MOST.get(self.state)
        return self.updated_at + limit if limit is not None else None


@dataclass(frozen=True, slots=True)
class RunQuestion:
    """When a run is read at GitHub (again), and the wait after that, in seconds."""

    due: Instant
    wait: Seconds
