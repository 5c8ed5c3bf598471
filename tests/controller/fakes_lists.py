"""GitHub's lists in memory, with an hour's limit: repositories, runs and jobs that tests change."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from autoscaler.controller.ports.github import RegisteredRunner
from autoscaler.controller.ports.github_lists import ListedRepository, ListedRun, Listing, RunStatus
from autoscaler.model.events import JobObserved
from autoscaler.model.identifiers import Instant, JobId, Seconds
from autoscaler.model.jobs.job import JobState, RunOrigin

T = TypeVar("T")
HOUR: Seconds = 3600.0
KEPT_BACK = 0.2


@dataclass
class FakeRun:
    """A run with its jobs by id."""

    id: int
    jobs: dict[JobId, JobObserved] = field(default_factory=dict)
    status: str = "in_progress"
    marks: int = 0
    fork: bool | None = False


@dataclass
class FakeLists:
    """`limit` is of an hour that began at `since`; every answer counts, unless `free` says so.

    `steady` is a pace that does not go by what is left. `whole` is that of the repositories' list.
    """

    now: Callable[[], Instant]
    limit: int = 15_000
    latency: Seconds = 0.3
    since: Instant = 0.0
    used: int = 0
    free: bool = False
    steady: float | None = None
    whole: bool = True
    asked: Counter[str] = field(default_factory=Counter)
    asked_of: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    created: dict[str, Instant] = field(default_factory=dict)
    active: dict[str, dict[int, FakeRun]] = field(default_factory=dict)
    registrations: list[RegisteredRunner] = field(default_factory=list)
    version_ends: dict[str, Instant] = field(default_factory=dict)
    broken: dict[str, Exception] = field(default_factory=dict)
    hidden: set[int] = field(default_factory=set)

    def queue(self, repository: str, run: int, job: int, at: Instant, label: str = "gpu") -> None:
        """Queue a job, in a run that may be new."""
        of_run = self.active.setdefault(repository, {}).setdefault(run, FakeRun(run))
        of_run.jobs[JobId(job)] = JobObserved(
            at, JobId(job), JobState.QUEUED, repository, (label,), at, run_id=run, read=True
        )

    async def repositories(self, scope: str) -> Listing[ListedRepository]:
        names = tuple(ListedRepository(name, self.now()) for name in self.active)
        return replace(await self._answer("repositories", scope, lambda: names), whole=self.whole)

    async def newest_repositories(self, scope: str) -> Listing[ListedRepository]:
        newest = sorted(self.created.items(), key=lambda one: one[1], reverse=True)[:30]
        names = tuple(ListedRepository(name, at, at) for name, at in newest)
        return await self._answer("created", f"created {scope}", lambda: names)

    async def newest_runs(self, repository: str) -> Listing[ListedRun]:
        return await self._answer("newest", repository, lambda: self._runs(repository, None)[-100:])

    async def runs(self, repository: str, status: str) -> Listing[ListedRun]:
        return await self._answer(status, repository, lambda: self._runs(repository, status))

    async def run(self, repository: str, run_id: int) -> Listing[ListedRun]:
        return await self._answer(
            "run",
            repository,
            lambda: tuple(map(_listed, [r for r in self._all(repository) if r.id == run_id])),
        )

    async def jobs(self, repository: str, run_id: int, now: Instant) -> Listing[JobObserved]:
        def of_run() -> tuple[JobObserved, ...]:
            found = self.active.get(repository, {}).get(run_id)
            return tuple(replace(j, at=now) for j in found.jobs.values()) if found else ()

        return await self._answer("jobs", repository, of_run)

    async def runners(self, scope: str) -> Listing[RegisteredRunner]:
        return await self._answer("runners", scope, lambda: tuple(self.registrations))

    async def runner_version_end(self, scope: str, version: str) -> Instant | None:
        await self._answer("versions", f"versions {scope}", tuple)
        return self.version_ends.get(version)

    def pace(self, scope: str) -> float:
        self._roll()
        if self.steady is not None:
            return self.steady
        free = self.limit * (1.0 - KEPT_BACK) - self.used
        return min(10.0, max(0.0, free) / max(1.0, self.since + HOUR - self.now()))

    def _all(self, repository: str) -> list[FakeRun]:
        return list(self.active.get(repository, {}).values())

    def _runs(self, repository: str, status: str | None) -> tuple[ListedRun, ...]:
        found = [run for run in self._all(repository) if status in (None, run.status)]
        return tuple(_listed(run) for run in found if run.id not in self.hidden)

    def _roll(self) -> None:
        if self.now() >= self.since + HOUR:
            self.since, self.used = self.now(), 0

    async def _answer(self, kind: str, of: str, read: Callable[[], tuple[T, ...]]) -> Listing[T]:
        assert of, f"a list of {kind} of nothing"
        self.asked[kind] += 1
        self.asked_of[of] += 1
        await asyncio.sleep(self.latency / 2)
        if of in self.broken or isinstance(self.broken, defaultdict):
            self.failed[of] += 1
            raise self.broken[of]
        items = read()
        self._roll()
        self.used += not self.free
        assert self.used <= self.limit
        await asyncio.sleep(self.latency / 2)
        return Listing(items, int(not self.free))


def _listed(run: FakeRun) -> ListedRun:
    origin = None if run.fork is None else RunOrigin(run.fork, False, None if run.fork else "main")
    status = RunStatus(run.status == "completed", origin)
    return ListedRun(run.id, status, f"{run.status} {run.marks}")
