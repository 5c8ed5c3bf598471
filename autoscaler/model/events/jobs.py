"""What GitHub reported about jobs and workflow runs, and what the controller asked GitHub."""

from dataclasses import dataclass

from autoscaler.model.events.event import Event
from autoscaler.model.identifiers import Instant, JobId, RunnerName
from autoscaler.model.jobs.demand import DemandClass
from autoscaler.model.jobs.job import JobState, RunOrigin
from autoscaler.model.reasons.waiting import WaitReason


@dataclass(frozen=True, slots=True)
class JobObserved(Event):
    """GitHub reported a job, by a webhook or (`read`) in the answer to a request.

    `runner_id` is GitHub's ID of the registration. Anyone can choose a runner's name, but not its ID.
    `head_sha` and `head_branch` are those of the job's run, or empty.
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
    head_sha: str = ""
    head_branch: str = ""


@dataclass(frozen=True, slots=True)
class JobReadRequested(Event):
    """The controller is about to read a job at GitHub."""

    id: JobId


@dataclass(frozen=True, slots=True)
class RunRead(Event):
    """GitHub reported where a run comes from."""

    run_id: int
    origin: RunOrigin


@dataclass(frozen=True, slots=True)
class RunReadRequested(Event):
    """The controller is about to read a workflow run at GitHub."""

    run_id: int


@dataclass(frozen=True, slots=True)
class JobAbandoned(Event):
    """GitHub will not give this job to any runner, although it has not reported the job's end."""

    id: JobId
    reason: str


@dataclass(frozen=True, slots=True)
class WaitReasonsChanged(Event):
    """Since `since`, jobs of this class have no machine on its way for these reasons; empty: all have one."""

    demand: DemandClass
    since: Instant
    reasons: tuple[WaitReason, ...]
