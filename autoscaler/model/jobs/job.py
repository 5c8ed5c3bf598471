"""The Job record: one job at GitHub, its states and transitions, and where its run comes from."""

from dataclasses import dataclass
from enum import StrEnum

from autoscaler.model.identifiers import Instant, JobId, RunnerName, Seconds
from autoscaler.model.jobs.demand import DemandClass


@dataclass(frozen=True, slots=True)
class RunOrigin:
    """The origin of a run, and with it of all its jobs.

    `from_fork`: its head repository is another repository than the run's own. `public`: its own
    repository is public. `branch`: the branch on which it is, as `access_rules.branch_of_run` returns it; None
    if it is on none.
    """

    from_fork: bool
    public: bool
    branch: str | None


class JobState(StrEnum):
    """GitHub's names of a job's states."""

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
    """Whether a job may use the SKUs of its class. The values are reason codes.

    GitHub shows the origin of a run in the run, not in the job.
    """

    ADMITTED = "admitted"
    UNREAD = "run_unknown"
    FORK = "fork_not_allowed"
    PUBLIC_REPOSITORY = "public_repository_not_allowed"
    BRANCH = "branch_not_allowed"

    @property
    def is_refusal(self) -> bool:
        """True if no SKU of the class may run the job."""
        return self not in (Admission.ADMITTED, Admission.UNREAD)


_DAY: Seconds = 86_400.0

QUEUED_AT_MOST: Seconds = _DAY
"""GitHub fails a job that was queued for a day (docs.github.com: Actions limits)."""

OPEN_AT_MOST: dict[JobState, Seconds] = {
    JobState.WAITING: 35 * _DAY,
    JobState.QUEUED: QUEUED_AT_MOST,
    JobState.IN_PROGRESS: 5 * _DAY + 3600.0,
}
"""Maximum time of a job in a state: a run ends after 35 days, a running job after 5 days (the same page), plus
an hour for GitHub's report of the end."""


@dataclass(slots=True)
class Job:
    """One job at GitHub. Moments are Unix seconds."""

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
    """Whether the job must be read at GitHub before a machine is launched for it.

    Either GitHub has reported both `queued` and `waiting`, or the store is a restored backup, or a
    runner that exited may have run the job.
    """
    read_at: Instant | None = None
    passed_over: tuple[RunnerName, ...] = ()
    """Runners with the job's labels that GitHub did not give the job to. Two put it on hold."""
    probe_at: Instant | None = None
    """When a job on hold is tried again. Without `passed_over`, its runner group refuses its repository."""
    origin: RunOrigin | None = None
    """Where its run comes from; None if that is unknown."""
    admission: Admission = Admission.ADMITTED
    """Only an admitted job is demand."""

    @property
    def expires_at(self) -> Instant | None:
        """Return the latest moment at which GitHub ends the job; None if it has ended."""
        limit = OPEN_AT_MOST.get(self.state)
        return self.updated_at + limit if limit is not None else None


@dataclass(frozen=True, slots=True)
class Question:
    """What GitHub is asked about a job or a run: since when, when it is asked again, and how often it was.

    Kept in memory: after a restart, the controller asks anew.
    """

    since: Instant
    due: Instant
    reads: int = 0

    def asked(self, due: Instant) -> "Question":
        """Return the question after one more request, with the moment of the next one."""
        return Question(self.since, due, self.reads + 1)
