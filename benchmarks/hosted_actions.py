"""GitHub Actions in memory: runs in repositories, their jobs, and the runners that are given them.

It decides which job goes to which runner, oldest first. It knows no calls and no limits.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from autoscaler.controller.ports.github import RegisteredRunner
from autoscaler.controller.ports.github_lists import ListedRun, RunStatus
from autoscaler.model.events import JobObserved
from autoscaler.model.identifiers import Instant, JobId, RunnerName, Seconds
from autoscaler.model.jobs.job import JobState, RunOrigin


@dataclass(eq=False, slots=True)
class HostedRunner:
    """A registration. `over` is set when its one job has ended."""

    id: int
    name: RunnerName
    online: bool = False
    job: "HostedJob | None" = None
    over: asyncio.Event = field(default_factory=asyncio.Event)

    def listed(self) -> RegisteredRunner:
        """As the lists show it."""
        return RegisteredRunner(self.id, self.name, self.online, self.job is not None)


@dataclass(eq=False, slots=True)
class HostedJob:
    """A job that runs for `works` seconds once a runner has it; None: no runner is given it."""

    id: int
    run: "HostedRun"
    label: str
    works: Seconds | None
    queued_at: Instant
    state: JobState = JobState.QUEUED
    runner: HostedRunner | None = None
    started_at: Instant | None = None
    completed_at: Instant | None = None

    def fact(self, at: Instant, *, read: bool) -> JobObserved:
        """What GitHub says of it now."""
        return JobObserved(
            at,
            JobId(self.id),
            self.state,
            self.run.repository,
            (self.label,),
            self.queued_at,
            run_id=self.run.id,
            runner_name=self.runner.name if self.runner is not None else None,
            started_at=self.started_at,
            completed_at=self.completed_at,
            conclusion="success" if self.state is JobState.COMPLETED else None,
            read=read,
            runner_id=self.runner.id if self.runner is not None else None,
        )


@dataclass(eq=False, slots=True)
class HostedRun:
    """A run: over when all of its jobs are. `changes` counts what happened to them.

    `over` is set when that happened once; more jobs may be queued after it.
    """

    id: int
    repository: str
    jobs: dict[int, HostedJob] = field(default_factory=dict)
    changes: int = 0
    open_jobs: int = 0
    over: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def status(self) -> str:
        """GitHub's word for it."""
        return "in_progress" if self.open_jobs else "completed"

    def listed(self) -> ListedRun:
        """Return the run as lists show it. Added jobs do not change its status: the worst case."""
        return ListedRun(
            self.id, RunStatus(not self.open_jobs, RunOrigin(False, False, "main")), self.status
        )

    def shown(self) -> tuple[int, int]:
        """What is another whenever an answer about it is."""
        return self.id, self.changes


class HostedActions:
    """Runs by repository and number. `report` is called for each change of a job."""

    def __init__(
        self,
        now: Callable[[], Instant],
        repositories: Iterable[str],
        report: Callable[[HostedJob], None],
    ) -> None:
        self.runs: dict[str, dict[int, HostedRun]] = {name: {} for name in repositories}
        self.jobs: dict[int, HostedJob] = {}
        self.registered: dict[RunnerName, HostedRunner] = {}
        self._now = now
        self._report = report
        self._waiting: deque[HostedJob] = deque()
        self._idle: deque[HostedRunner] = deque()
        self._registered = 0

    def queue(
        self, repository: str, run: int, label: str, works: Seconds | None = None
    ) -> HostedJob:
        """A job is queued, in a run that may be new."""
        of_run = self.runs[repository].setdefault(run, HostedRun(run, repository))
        job = HostedJob(len(self.jobs) + 1, of_run, label, works, self._now())
        self.jobs[job.id] = of_run.jobs[job.id] = job
        of_run.open_jobs += 1
        self._say(job)
        if works is not None:
            self._waiting.append(job)
            self._assign_jobs()
        return job

    def end(self, run: HostedRun) -> None:
        """All that is open in a run is over."""
        for job in run.jobs.values():
            self._complete(job)

    def register(self, name: RunnerName) -> HostedRunner:
        """A new offline runner."""
        self._registered += 1
        runner = self.registered[name] = HostedRunner(self._registered, name)
        return runner

    def listen(self, name: RunnerName) -> HostedRunner | None:
        """A runner's listener comes online; None if it is registered no more."""
        runner = self.registered.get(name)
        if runner is not None:
            runner.online = True
            self._idle.append(runner)
            self._assign_jobs()
        return runner

    def delete(self, runner: HostedRunner) -> None:
        """It is registered no more, and is given no job."""
        del self.registered[runner.name]

    def _assign_jobs(self) -> None:
        while self._waiting and self._idle:
            if self._waiting[0].state is not JobState.QUEUED:
                self._waiting.popleft()
            elif self._idle[0].name not in self.registered:
                self._idle.popleft()
            else:
                self._start(self._waiting.popleft(), self._idle.popleft())

    def _start(self, job: HostedJob, runner: HostedRunner) -> None:
        runner.job, job.runner = job, runner
        job.state, job.started_at = JobState.IN_PROGRESS, self._now()
        self._say(job)
        asyncio.get_running_loop().call_later(job.works or 0.0, self._complete, job)

    def _complete(self, job: HostedJob) -> None:
        if job.state is JobState.COMPLETED:
            return
        job.state, job.completed_at = JobState.COMPLETED, self._now()
        job.run.open_jobs -= 1
        if not job.run.open_jobs:
            job.run.over.set()
        if job.runner is not None:
            self.delete(job.runner)
            job.runner.over.set()
        self._say(job)

    def _say(self, job: HostedJob) -> None:
        job.run.changes += 1
        self._report(job)
