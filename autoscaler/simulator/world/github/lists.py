"""GitHub's lists for the controller: a run for each job, and runners. They may be out of date."""

import asyncio
from collections.abc import Callable, Container, Sequence
from typing import TypeVar

from autoscaler.controller.ports.github import RegisteredRunner, RetryLaterError
from autoscaler.controller.ports.github_lists import ListedRepository, ListedRun, Listing, RunStatus
from autoscaler.model.cooldowns import RateLimit
from autoscaler.model.events import JobObserved
from autoscaler.model.identifiers import Instant, JobId, Seconds
from autoscaler.model.jobs.job import JobState
from autoscaler.simulator.world.fault_schedule import FaultSchedule
from autoscaler.simulator.world.github.actions import Actions
from autoscaler.simulator.world.processes import count_call
from autoscaler.simulator.world.schedule import REPOSITORY, FaultKind
from autoscaler.simulator.world.virtual_time import EPOCH

T = TypeVar("T")
LATENCY: Seconds = 0.3
SECONDARY_WAIT: Seconds = 60.0
NEWEST = 30
PER_SECOND = 1.0
"""Requests a second for lists, as an account with 5,000 requests an hour can spare them."""

VERSION_END = EPOCH + 10 * 86_400.0
"""When GitHub stops giving jobs to the version of actions/runner that machines have."""

USED_UP = 0.0
"""The pace of an account without spare calls: its lists are read for operators and runner groups only."""


class SimulatedLists:
    """Implements the GitHubLists port.

    `shown` are the jobs that a list showed before they completed. After the store was rewound, only the
    jobs that the store knows remain.
    """

    def __init__(
        self,
        actions: Actions,
        fault_schedule: FaultSchedule,
        now: Callable[[], Instant],
        per_second: float,
    ) -> None:
        self.shown: set[JobId] = set()
        self._actions = actions
        self._fault_schedule = fault_schedule
        self._now = now
        self._per_second = per_second

    def rewind(self, known: Container[JobId]) -> None:
        """Take note that the store was rewound and knows only these jobs."""
        self.shown = {job for job in self.shown if job in known}

    async def repositories(self, scope: str) -> Listing[ListedRepository]:
        """List the repositories with runs, and one more."""
        del scope
        runs = self._actions.latest.values()
        names = sorted({REPOSITORY} | {job.arrival.repository for job in runs})
        return await self._answer(lambda: [ListedRepository(name, self._now()) for name in names])

    async def newest_repositories(self, scope: str) -> Listing[ListedRepository]:
        """List the newest repositories, with their creation times."""
        del scope
        return await self._answer(
            lambda: [
                ListedRepository(name, at, at)
                for name, at in sorted(
                    self._actions.repositories.items(), key=lambda one: one[1], reverse=True
                )[:NEWEST]
            ]
        )

    async def newest_runs(self, repository: str) -> Listing[ListedRun]:
        """List the newest hundred runs."""
        return await self._answer(lambda: self._runs(repository)[-100:])

    async def runs(self, repository: str, status: str) -> Listing[ListedRun]:
        """List the runs in a state."""
        return await self._answer(lambda: self._runs(repository, status))

    async def run(self, repository: str, run_id: int) -> Listing[ListedRun]:
        """List one run, if it exists."""
        return await self._answer(
            lambda: [run for run in self._runs(repository) if run.id == run_id]
        )

    async def jobs(self, repository: str, run_id: int, now: Instant) -> Listing[JobObserved]:
        """List a run's only job, which may be out of date."""
        del repository

        def read() -> list[JobObserved]:
            job = self._actions.latest.get(run_id)
            if job is None:
                return []
            stale = self._fault_schedule.hit(FaultKind.STALE_JOB)
            then = self._now() - (stale.target if stale is not None else 0.0)
            wrong = self._fault_schedule.hit(FaultKind.WRONG_ANSWERS)
            snapshot = job.snapshot_at(then if wrong is None else 0.0)
            if snapshot.state is not JobState.COMPLETED:
                self.shown.add(job.id)
            return [snapshot.to_event(now, read=True)]

        return await self._answer(read)

    async def runners(self, scope: str) -> Listing[RegisteredRunner]:
        """List the registrations, which may be out of date."""

        def read() -> list[RegisteredRunner]:
            stale = self._fault_schedule.hit(FaultKind.STALE_LIST)
            then = self._now() - (stale.target if stale is not None else 0.0)
            idle = self._fault_schedule.hit(FaultKind.LIST_SAYS_IDLE) is not None
            if self._fault_schedule.hit(FaultKind.WRONG_ANSWERS):
                return []
            return [
                RegisteredRunner(r.id, r.name, r.online_by(then), r.busy_by(then) and not idle)
                for r in self._actions.registrations.values()
                if r.scope == scope and r.listed_by(then)
            ]

        return await self._answer(read)

    async def runner_version_end(self, scope: str, version: str) -> Instant | None:
        """Return when GitHub stops giving jobs to a version of actions/runner.

        Fails while requests fail, but counts as none: such a read shifts no fault that hits every n-th request.
        """
        del scope, version
        await asyncio.sleep(LATENCY)
        for kind in (FaultKind.SECONDARY_LIMIT, FaultKind.GITHUB_5XX):
            if self._fault_schedule.active(kind):
                raise RetryLaterError(f"{kind}", SECONDARY_WAIT)
        return VERSION_END

    def pace(self, scope: str) -> float:
        """Return the allowed requests a second."""
        del scope
        limited = self._fault_schedule.active(FaultKind.SECONDARY_LIMIT)
        return USED_UP if limited else self._per_second

    def _runs(self, repository: str, status: str | None = None) -> list[ListedRun]:
        if self._fault_schedule.hit(FaultKind.WRONG_ANSWERS):
            return []
        return [
            ListedRun(
                run,
                RunStatus(job.state is JobState.COMPLETED, job.arrival.origin),
                f"{job.state} {job.attempt}",
            )
            for run, job in self._actions.latest.items()
            if job.arrival.repository == repository and status in (None, job.state)
        ]

    async def _answer(self, read: Callable[[], Sequence[T]]) -> Listing[T]:
        fault_schedule = self._fault_schedule
        await count_call()
        await asyncio.sleep(LATENCY)
        if fault_schedule.hit(FaultKind.SECONDARY_LIMIT):
            raise RetryLaterError("403 secondary rate limit", SECONDARY_WAIT, RateLimit.SECONDARY)
        if fault_schedule.hit(FaultKind.GITHUB_5XX):
            raise RetryLaterError("502 Bad Gateway", 1.0)
        items = read()
        await count_call()
        return Listing(items, 1)
