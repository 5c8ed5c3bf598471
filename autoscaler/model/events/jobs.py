"""What GitHub said of jobs, what it was asked of them, and what it will do no more for one."""

from dataclasses import dataclass

from autoscaler.model.events.event import Event
from autoscaler.model.identifiers import Instant, JobId, RunnerName
from autoscaler.model.jobs import JobState


@dataclass(frozen=True, slots=True)
class JobObserved(Event):
    """GitHub spoke of a job: by a webhook, or (`read`) by answering a question about it.

    `runner_id` is GitHub's own id of the registration: names are anybody's to choose.
    """

    id: JobId
    state: JobState
    repository: str
    labels: tuple[str, ...]
    queued_at: Instant
    name: str = ""
    workflow: str = ""
    run_id: int | None = None
    run_attempt: int = 1
    runner_name: RunnerName | None = None
    started_at: Instant | None = None
    completed_at: Instant | None = None
    conclusion: str | None = None
    read: bool = False
    runner_id: int | None = None


@dataclass(frozen=True, slots=True)
class JobReadRequested(Event):
    """GitHub is about to be asked about a job."""

    id: JobId


@dataclass(frozen=True, slots=True)
class RunRead(Event):
    """GitHub said whether a run's head repository is another one than the run's own."""

    run_id: int
    from_fork: bool


@dataclass(frozen=True, slots=True)
class RunReadRequested(Event):
    """GitHub is about to be asked about a run."""

    run_id: int


@dataclass(frozen=True, slots=True)
class JobAbandoned(Event):
    """A job that GitHub will give to no runner any more, although it has not said so of the job."""

    id: JobId
    reason: str
