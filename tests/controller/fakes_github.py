"""The simulator's GitHub with scripted errors, and a record of the requests that it got."""

from collections import defaultdict, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from autoscaler.controller.ports.github import GitHubError, Redelivered
from autoscaler.controller.ports.store import Delivery
from autoscaler.model.events import JobObserved
from autoscaler.model.identifiers import Instant, JobId, RunnerName, Seconds
from autoscaler.model.jobs.job import JobState
from autoscaler.model.jobs.runner_group_excess import RunnerGroup
from autoscaler.simulator.world.controller.process import ProcessGoneError
from autoscaler.simulator.world.fault_schedule import FaultSchedule
from autoscaler.simulator.world.github.actions import Actions
from autoscaler.simulator.world.github.port import (
    DEFAULT_GROUP,
    LATENCY,
    SimulatedGitHub,
    secret_of,
)
from autoscaler.simulator.world.github.webhooks import Webhooks
from autoscaler.simulator.world.jobs import JobSnapshot, Registration, SimulatedJob
from autoscaler.simulator.world.schedule import Fault, JobArrival
from tests.controller.virtual_time import VirtualClock

T = TypeVar("T")

OPEN = RunnerGroup("private", allows_public_repositories=False, restricted_to_workflows=False)
FOR_EVER: Seconds = 1e9
CLOCK = VirtualClock()


@dataclass(frozen=True)
class AnswerLost:
    """The request is carried out, and this error is raised instead of an answer."""

    error: GitHubError


class ScriptedGitHub(SimulatedGitHub):
    """`scripts` are consumed from the left, by method; with an empty one a request succeeds.

    `deliver` gets the webhooks once `report` sends them; most tests deliver webhooks of their own.
    `clock_runs`: `now` passes between a request and its arrival here, so only a stopped clock dates a
    request exactly.
    """

    def __init__(
        self,
        faults: tuple[Fault, ...] = (),
        *,
        latency: Seconds = LATENCY,
        now: Callable[[], Instant] = CLOCK.now,
        clock_runs: bool = False,
    ) -> None:
        self.now, self.latency, self.clock_runs = now, latency, clock_runs
        self.asked: list[str] = []
        self.since: list[Instant] = []
        self.scripts: dict[str, deque[GitHubError | AnswerLost | None]] = defaultdict(deque)
        self.on_register: Callable[[RunnerName], None] = lambda _: None
        self.on_delete: Callable[[int], None] = lambda _: None
        self.report: Callable[[JobSnapshot], None] = lambda _: None
        self.deliver: Callable[[Delivery], Awaitable[object]] = _no_controller
        self.redelivered: int | None = None
        self.fault_schedule = schedule = FaultSchedule(faults, 0.0)
        self.webhooks = Webhooks(schedule, self._moment, lambda sent: self.deliver(sent))
        self.actions = Actions(schedule, self._moment, lambda change: self.report(change))
        super().__init__(
            self.actions,
            self.webhooks,
            schedule,
            lambda name: self.on_register(name),
            self._moment,
        )
        self.groups[DEFAULT_GROUP] = OPEN

    def script(self, method: str, *steps: GitHubError | AnswerLost | None) -> None:
        """Set the outcomes of the next calls of a method. None means success."""
        self.scripts[method].extend(steps)

    @property
    def registrations(self) -> dict[RunnerName, Registration]:
        """The registrations that exist."""
        every = self.actions.registrations.items()
        return {name: one for name, one in every if one.deleted_at is None}

    @property
    def registered(self) -> list[RunnerName]:
        """The names of all registrations that were ever made, in order."""
        return [one.name for one in self.actions.registered]

    @property
    def secrets(self) -> dict[RunnerName, str]:
        """The JIT configurations by runner."""
        return {one.name: secret_of(one) for one in self.actions.registered}

    def connect(self, name: RunnerName) -> None:
        """Connect a runner's listener."""
        self.actions.listen(self.registrations[name])

    def disconnect(self, name: RunnerName) -> None:
        """Disconnect a runner's listener."""
        self.registrations[name].offline_at = self.now()

    def remove(self, name: RunnerName) -> None:
        """Delete a registration, as GitHub does after a job or a day."""
        self.actions.delete(self.registrations[name])

    def occupy(self, name: RunnerName) -> SimulatedJob:
        """Run a job on a runner. Return the job."""
        arrival = JobArrival(0.0, 10_000 + len(self.actions.jobs), ("gpu",), FOR_EVER)
        job = SimulatedJob(arrival, JobState.QUEUED, self.now())
        self.actions.start(job, self.registrations[name])
        return job

    def queue_run(self, run: int, *, fork: bool = False) -> None:
        """Queue the job of a run."""
        self.actions.queue(JobArrival(0.0, run, ("gpu",), FOR_EVER, fork=fork))

    def show(self, seen: JobObserved) -> None:
        """Let reads of a job show it like this from now on."""
        arrival = JobArrival(0.0, seen.id, seen.labels, FOR_EVER, repository=seen.repository)
        job = SimulatedJob(arrival, seen.state, seen.queued_at)
        job = self.actions.jobs.setdefault(seen.id, job)
        job.snapshots.append((self.now(), _snapshot(seen)))

    async def delete_runner(self, scope: str, github_id: int) -> bool:
        self.on_delete(github_id)
        return await super().delete_runner(scope, github_id)

    async def read_job(self, repository: str, job: JobId, now: Instant) -> JobObserved | None:
        asked_now = now <= self.now() if self.clock_runs else now == self.now()
        assert asked_now, "the time of the request dates the answer"
        return await super().read_job(repository, job, now)

    async def redeliver_failed(self, since: Instant) -> Redelivered:
        self.since.append(since)
        answer = await super().redeliver_failed(since)
        return answer if self.redelivered is None else Redelivered(self.redelivered, since)

    def _moment(self) -> Instant:
        return self.now()

    async def _answer(self, method: str, carry_out: Callable[[], T], lost: GitHubError) -> T:
        self.asked.append(method)
        step: GitHubError | AnswerLost | None = None

        def follow_script() -> T:
            nonlocal step
            step = self.scripts[method].popleft() if self.scripts[method] else None
            if isinstance(step, GitHubError):
                raise step
            return carry_out()

        answer = await super()._answer(method, follow_script, lost)
        if isinstance(step, AnswerLost):
            raise step.error
        return answer


def _snapshot(seen: JobObserved) -> JobSnapshot:
    return JobSnapshot(
        seen.id,
        seen.run_id or seen.id,
        seen.run_attempt,
        seen.state,
        seen.repository,
        seen.labels,
        seen.queued_at,
        seen.runner_name,
        seen.runner_id,
        seen.started_at,
        seen.completed_at,
        seen.conclusion,
    )


async def _no_controller(delivery: Delivery) -> None:
    raise ProcessGoneError
