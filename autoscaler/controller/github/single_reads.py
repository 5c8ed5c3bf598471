"""Reads single jobs, runs and runners from GitHub and records the answers as events."""

import asyncio

import structlog

from autoscaler.controller.journal import Journal
from autoscaler.controller.ports.github import GitHub, GitHubError, RegisteredRunner
from autoscaler.model.events import RunnerRead, RunRead
from autoscaler.model.identifiers import JobId, MachineId
from autoscaler.model.jobs.job import JobState
from autoscaler.model.jobs.runners import Runner
from autoscaler.model.reasons.table import WaitCode

_log = structlog.get_logger(__name__)

RUN_READS_AT_ONCE = 32
"""Maximum number of concurrent reads of runs. It leaves connections for registrations, which come first."""


class GitHubReader:
    """Reads GitHub. A read that fails records nothing; the planner requests it again later."""

    def __init__(self, journal: Journal, github: GitHub) -> None:
        self._journal = journal
        self._github = github
        self._run_reads = asyncio.Semaphore(RUN_READS_AT_ONCE)

    async def read_job(self, job_id: JobId) -> None:
        """Read a job and record its state."""
        job = self._journal.ledger.state.jobs.get(job_id)
        if job is None:
            return
        try:
            answer = await self._github.read_job(job.repository, job_id, self._journal.now)
        except GitHubError:
            return
        if answer is not None:  # a 404 may be a lost permission and proves nothing about the job
            await self._journal.record(answer)

    async def read_run(self, repository: str, run_id: int) -> None:
        """Read a run and record where it comes from.

        After a 404 that stays unknown, and no job of the run is served. Skips a run whose origin no job
        waits for any more, because the same read may be requested twice.
        """
        try:
            async with self._run_reads:
                if run_id not in self._journal.ledger.state.unread:
                    return
                origin = await self._github.run_origin(repository, run_id)
        except GitHubError as error:
            self._report_unread(repository, run_id, str(error))
            return
        if origin is None:
            answer = "GitHub answers 404, or shows the run without its origin"
            self._report_unread(repository, run_id, answer)
            return
        await self._journal.record(RunRead(self._journal.now, run_id, origin))

    def _report_unread(self, repository: str, run_id: int, error: str) -> None:
        """Log GitHub's answer after the first, second, fourth, eighth, ... read of a run that failed."""
        question = self._journal.ledger.state.run_questions.get(run_id)
        times = question.reads if question is not None else 1
        if times & (times - 1):
            return
        _log.warning(
            "run_not_read",
            code=WaitCode.RUN_UNKNOWN,
            repository=repository,
            run=run_id,
            times=times,
            error=error,
        )

    async def read_runner(self, machine_id: MachineId) -> None:
        """Read the runner of a silent machine and record whether its job is provably over."""
        machine = self._journal.ledger.state.machines.get(machine_id)
        runner = self._journal.ledger.state.runner_of(machine) if machine is not None else None
        if runner is None:
            return
        try:
            answer = await self._runner_read(machine_id, runner)
        except GitHubError:
            return
        await self._journal.record(answer)

    async def _runner_read(self, machine: MachineId, runner: Runner) -> RunnerRead:
        job = self._journal.ledger.state.jobs.get(runner.job) if runner.job is not None else None
        # For a job that is known to be completed, only its registration is left to read.
        if job is not None and job.state is not JobState.COMPLETED:
            answer = await self._github.read_job(job.repository, job.id, self._journal.now)
            if answer is None:
                detail = f"GitHub returns 404 for job {job.id}"  # no proof that the job is over
                return RunnerRead(self._journal.now, machine, False, detail)
            over, detail = answer.state is JobState.COMPLETED, f"job {job.id} is {answer.state}"
            return RunnerRead(self._journal.now, machine, over, detail)
        return await self._registration_read(machine, runner)

    async def _registration_read(self, machine: MachineId, runner: Runner) -> RunnerRead:
        listed = await self._github.find_runner(runner.demand.scope, runner.name)
        github_id = runner.github_id
        if github_id is None and listed is not None:
            github_id = listed.github_id
        if github_id is None:
            detail = "GitHub's list does not show its runner, and the runner's id is unknown"
            return RunnerRead(self._journal.now, machine, False, detail)
        # A list may omit a runner that exists, so absence counts only with a 404 for its id.
        read = await self._github.read_runner(runner.demand.scope, github_id)
        agree = (listed is None) is (read is None)
        job = "no job is known" if runner.job is None else f"job {runner.job} is over"
        detail = f"{job}; listed: {_state(listed)}, read by its id: {_state(read)}"
        finished = agree and not _may_work(listed) and not _may_work(read)
        gone = listed is None and read is None
        return RunnerRead(self._journal.now, machine, finished, detail, gone)


def _may_work(runner: RegisteredRunner | None) -> bool:
    return runner is not None and (runner.online or runner.busy)


def _state(runner: RegisteredRunner | None) -> str:
    return "absent" if runner is None else f"online={runner.online}, busy={runner.busy}"
