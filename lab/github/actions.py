"""Simulates GitHub's Actions service: assigns queued jobs to idle runners and applies its timeouts.

It keeps the state of every job and runner, and calls `announce` with each change that GitHub sends as a
webhook. It learns about machines only from their runners. Source: GitHub's documentation on limits and on
self-hosted runners.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from autoscaler.controller.ports.clock import Clock
from lab.github.matching import Matching
from lab.github.records import Job, JobStatus, Run, Runner
from lab.github.runners import Runners
from lab.github.settings import JobSpec, Patience
from lab.github.timers import Timers
from lab.github.workflows import Workflows


class RunnerBusyError(Exception):
    """422: the runner has a job."""


class NotTheirJobError(Exception):
    """404: this runner does not have this job (any more)."""


class JobCancelledError(Exception):
    """410: the job was cancelled, and the runner must end it."""


class Actions:
    """One service for all organizations. The first `lose` jobs disappear when they are queued."""

    def __init__(
        self,
        clock: Clock,
        timers: Timers,
        matching: Matching,
        workflows: Workflows,
        patience: Patience,
        announce: Callable[[Job, str], None],
    ) -> None:
        self._clock = clock
        self._timers = timers
        self._matching = matching
        self._workflows = workflows
        self._patience = patience
        self._announce = announce
        self.runners = Runners(clock, timers, matching, patience)
        self.lose = 0
        self.unfinished = 0
        self.settled = asyncio.Event()
        self.settled.set()

    # What people do.

    def push(self, specs: Sequence[JobSpec]) -> list[Job]:
        """Create the jobs and queue those without open needs. Raises ValueError (see Workflows)."""
        return self._admit(self._workflows.create(specs, self._clock.now()))

    def rerun_failed(self, run: Run, only: Job | None = None) -> list[Job]:
        """Re-run a run's failed jobs, or one job. Send `completed` again for the others, as GitHub does.

        Raises ValueError while the run has not ended.
        """
        done = [job for job in run.jobs.values() if job.conclusion == "success"]
        jobs = self._admit(self._workflows.repeat(run, self._clock.now(), only))
        for job in done if jobs else ():
            self._announce(job, "completed")
        return jobs

    def _admit(self, jobs: list[Job]) -> list[Job]:
        self.unfinished += len(jobs)
        if jobs:
            self.settled.clear()
        for job in jobs:
            needs = [job.run.jobs[name] for name in job.spec.needs]
            if any(need.conclusion not in {None, "success"} for need in needs):
                self._finish(job, "skipped")
        self._release(jobs)
        return jobs

    def cancel(self, job: Job) -> None:
        """Cancel a job: at once if it has not started; otherwise its runner or a timeout ends it."""
        if job.status is JobStatus.COMPLETED or job.cancelled:
            return
        job.cancelled = True
        if job.status is not JobStatus.IN_PROGRESS:
            self._finish(job, "cancelled")
            return

        def overdue() -> None:
            if job.status is JobStatus.IN_PROGRESS:
                self._abandon(job, "cancelled")

        self._timers.at(self._clock.now() + self._patience.cancel, overdue)

    def end(self, job: Job) -> None:
        """End a job early and successfully. Its runner learns it when it renews the lock."""
        job.over = True

    def lose_job(self, job: Job) -> bool:
        """Remove a job from the queue for good. Return False if a runner already has it."""
        if job.runner is not None or job.status is JobStatus.COMPLETED:
            return False
        job.lost = True
        self._matching.remove_job(job.kind, job.id)
        return True

    # What the REST API does.

    def delete(self, runner: Runner) -> None:
        """Remove a registration. Raises RunnerBusyError while it has a job."""
        if runner.job is not None:
            raise RunnerBusyError
        self.runners.remove(runner)

    # What runners do.

    def connect(self, runner: Runner) -> None:
        """Mark a runner as online: its listener has started. Raises RunnerGoneError."""
        self.runners.connect(runner)

    async def message(self, runner: Runner, wait: float) -> Job | None:
        """Return a job for a runner after at most `wait` real seconds, or None. Repeats a lost answer.

        Raises RunnerGoneError at once if the registration is removed meanwhile.
        """
        self.runners.seen(runner)
        if runner.job is not None and runner.job.status is JobStatus.QUEUED:
            return runner.job
        if runner.job is None and runner.connected:
            found = self._matching.job_for(runner.kind)
            if found is not None:
                job = self._workflows.jobs[found]
                self._matching.remove_job(job.kind, job.id)
                self._hand(job, runner)
                return job
        answer = await self.runners.wait(runner, wait)
        self.runners.seen(runner)
        return answer

    def started(self, runner: Runner, number: int) -> None:
        """Mark a job as running. Raises RunnerGoneError, NotTheirJobError."""
        job = self._own(runner, number)
        if job.status is JobStatus.IN_PROGRESS:
            return
        now = self._clock.now()
        job.status = JobStatus.IN_PROGRESS
        job.started_at = now
        job.starts.append(runner.name)
        job.lease = now + self._patience.lock
        self._timers.at(job.lease, partial(self._check_lease, job))
        self._announce(job, "in_progress")

    def renew(self, runner: Runner, number: int) -> bool:
        """Renew a job's lock. Return True if the runner must end the job now.

        Raises RunnerGoneError, NotTheirJobError, JobCancelledError.
        """
        job = self._own(runner, number)
        job.lease = self._clock.now() + self._patience.lock
        if job.cancelled:
            raise JobCancelledError
        return job.over

    def completed(self, runner: Runner, number: int, conclusion: str, stepped: bool) -> None:
        """Complete a job and remove the registration, even if the job was given to another runner.

        `stepped`: a step of the job ran.

        Raises RunnerGoneError, NotTheirJobError.
        """
        if runner.job is None:
            self.runners.remove(runner)
            raise NotTheirJobError
        job = self._own(runner, number)
        if job.status is not JobStatus.IN_PROGRESS:
            raise NotTheirJobError
        job.stepped = stepped
        self._finish(job, "cancelled" if job.cancelled else conclusion)
        self.runners.remove(runner)

    # Jobs.

    def _release(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            if job.open_needs == 0 and job.status is JobStatus.BLOCKED:
                self._queue(job)

    def _queue(self, job: Job) -> None:
        job.queued_at = self._clock.now()
        job.status = JobStatus.QUEUED
        self._announce(job, "queued")
        if job.spec.approval is None:
            self._offer(job)
            return
        job.status = JobStatus.WAITING
        self._announce(job, "waiting")

        def approve() -> None:
            if job.status is JobStatus.WAITING:
                job.status = JobStatus.QUEUED
                self._announce(job, "queued")
                self._offer(job)

        self._timers.at(job.queued_at + job.spec.approval, approve)

    def _offer(self, job: Job) -> None:
        """Give a job to an idle runner or queue it, and start the timer of its deadline."""
        if self.lose > 0:
            self.lose -= 1
            job.lost = True
        if job.lost:
            return
        self._timers.at(self._clock.now() + self._patience.queue, partial(self._expire, job))
        self._match(job)

    def _match(self, job: Job, *, returned: bool = False) -> None:
        found = self._matching.runner_for(job.kind)
        if found is None:
            self._matching.add_job(job.kind, job.id, job.order, first=returned)
            return
        runner = self.runners.by_id[found]
        self._hand(job, runner)
        self.runners.close_poll(runner, job)

    def _hand(self, job: Job, runner: Runner) -> None:
        runner.job = job
        job.runner = runner
        job.assigned += 1
        overdue = partial(self._take_back, job, runner, job.assigned)
        self._timers.at(self._clock.now() + self._patience.start, overdue)

    def _take_back(self, job: Job, runner: Runner, assigned: int) -> None:
        """Give an assigned job that was not started in time to another runner."""
        if job.status is JobStatus.QUEUED and job.runner is runner and job.assigned == assigned:
            job.runner = runner.job = None
            self._match(job, returned=True)

    def _expire(self, job: Job) -> None:
        if job.status is JobStatus.QUEUED and not job.lost:
            self._finish(job, "failure")

    def _check_lease(self, job: Job) -> None:
        if job.status is not JobStatus.IN_PROGRESS:
            return
        if self._clock.now() < job.lease:
            self._timers.at(job.lease, partial(self._check_lease, job))
        else:
            self._abandon(job, "failure")

    def _abandon(self, job: Job, conclusion: str) -> None:
        """End a job without its runner. The registration stays and never gets another job."""
        runner = job.runner
        self._finish(job, conclusion)
        if runner is not None:
            runner.spent = True
            self.runners.close_poll(runner, None)

    def _finish(self, job: Job, conclusion: str) -> None:
        """End a job, and queue or skip the jobs that need it."""
        ending = [(job, conclusion)]
        ready: list[Job] = []
        for ended, outcome in ending:
            if ended.status is JobStatus.COMPLETED:
                continue
            self._matching.remove_job(ended.kind, ended.id)
            ended.status = JobStatus.COMPLETED
            ended.conclusion = outcome
            ended.completed_at = self._clock.now()
            if ended.runner is not None:
                ended.runner.job = None
            self._announce(ended, "completed")
            self.unfinished -= 1
            released, skipped = self._workflows.released(ended)
            ready += released
            ending += [(dependent, "skipped") for dependent in skipped]
        self._release(ready)
        if self.unfinished == 0:
            self.settled.set()

    # Runners.

    def _own(self, runner: Runner, number: int) -> Job:
        self.runners.seen(runner)
        if runner.job is None or runner.job.id != number:
            raise NotTheirJobError
        return runner.job
