"""The state of a job and of a runner at the simulated GitHub."""

import asyncio
from dataclasses import dataclass, field

from autoscaler.model.catalogue import Access
from autoscaler.model.events import JobObserved
from autoscaler.model.identifiers import Instant, JobId, RunnerName
from autoscaler.model.jobs.access_rules import admits_repository, rule_against
from autoscaler.model.jobs.job import JobState
from autoscaler.model.jobs.labels import label_set
from autoscaler.simulator.world.schedule import JobArrival

AGAIN = 1000
"""A run's job has the number of its run. Each further attempt adds this to it."""


@dataclass(frozen=True, slots=True)
class JobSnapshot:
    """The state of a job as a webhook or a list shows it."""

    job: JobId
    run: int
    attempt: int
    state: JobState
    repository: str
    labels: tuple[str, ...]
    queued_at: Instant
    runner_name: RunnerName | None = None
    runner_id: int | None = None
    started_at: Instant | None = None
    completed_at: Instant | None = None
    conclusion: str | None = None

    def to_event(self, at: Instant, *, read: bool = False) -> JobObserved:
        """Return the event for the controller."""
        return JobObserved(
            at,
            self.job,
            self.state,
            self.repository,
            self.labels,
            self.queued_at,
            run_id=self.run,
            run_attempt=self.attempt,
            runner_name=self.runner_name,
            started_at=self.started_at,
            completed_at=self.completed_at,
            conclusion=self.conclusion,
            read=read,
            runner_id=self.runner_id,
        )


@dataclass(eq=False, slots=True)
class Registration:
    """One registered runner.

    `suspended`: the listener takes no job now. `assigned` is a job that the listener has not picked up.
    `access` is what its machine's job hook decides by.
    """

    id: int
    scope: str
    name: RunnerName
    labels: frozenset[str]
    created_at: Instant
    online_at: Instant | None = None
    offline_at: Instant | None = None
    busy_at: Instant | None = None
    deleted_at: Instant | None = None
    suspended: bool = False
    access: Access = field(default_factory=lambda: Access(forks=True))
    job: "SimulatedJob | None" = None
    assigned: "SimulatedJob | None" = None
    over: asyncio.Event = field(default_factory=asyncio.Event)

    def refuses(self, job: "SimulatedJob") -> bool:
        """Return whether the job hook of its machine stops the job before its first step."""
        if not admits_repository(self.access, job.arrival.repository):
            return True
        return rule_against(self.access, job.arrival.origin) is not None

    @property
    def idle(self) -> bool:
        """Return whether GitHub may assign a job to it."""
        there = self.online_at is not None and self.deleted_at is None
        return there and self.busy_at is None and not self.suspended

    def listed_by(self, moment: Instant) -> bool:
        """Return whether GitHub listed it at that moment."""
        return self.created_at <= moment and not _by(self.deleted_at, moment)

    def online_by(self, moment: Instant) -> bool:
        """Return whether it was online then."""
        return _by(self.online_at, moment) and not _by(self.offline_at, moment)

    def busy_by(self, moment: Instant) -> bool:
        """Return whether it had a job then."""
        return _by(self.busy_at, moment)

    @property
    def works(self) -> bool:
        """Return whether a job runs on it, whatever GitHub lists."""
        return self.job is not None and self.job.state is JobState.IN_PROGRESS

    @property
    def spent(self) -> bool:
        """Return whether its job is over and it is deregistered."""
        return self.deleted_at is not None and self.job is not None and not self.works


@dataclass(eq=False, slots=True)
class SimulatedJob:
    """The only job of a run. `killed` is the reason why its machine ended while it ran.

    Until `held_until` GitHub assigns it to no runner.
    """

    arrival: JobArrival
    state: JobState
    queued_at: Instant
    attempt: int = 1
    runner: Registration | None = None
    started_at: Instant | None = None
    completed_at: Instant | None = None
    conclusion: str | None = None
    killed: str = ""
    starts: int = 0
    held_until: Instant = 0.0
    timer: asyncio.TimerHandle | None = None
    snapshots: list[tuple[Instant, JobSnapshot]] = field(default_factory=list)

    @property
    def id(self) -> JobId:
        """Return its ID, another one in each attempt of its run."""
        return JobId(self.arrival.job + AGAIN * (self.attempt - 1))

    @property
    def labels(self) -> frozenset[str]:
        """Return its labels in lower case, as GitHub compares them."""
        return label_set(self.arrival.labels)

    @property
    def run(self) -> int:
        """Return the number of its run."""
        return self.arrival.job

    def snapshot(self) -> JobSnapshot:
        """Return its current state."""
        return JobSnapshot(
            self.id,
            self.run,
            self.attempt,
            self.state,
            self.arrival.repository,
            self.arrival.labels,
            self.queued_at,
            self.runner.name if self.runner is not None else None,
            self.runner.id if self.runner is not None else None,
            self.started_at,
            self.completed_at,
            self.conclusion,
        )

    def snapshot_at(self, moment: Instant) -> JobSnapshot:
        """Return its state at that moment, or its first one."""
        earlier = [snapshot for at, snapshot in self.snapshots if at <= moment]
        return earlier[-1] if earlier else self.snapshots[0][1]


def _by(event: Instant | None, moment: Instant) -> bool:
    return event is not None and event <= moment
