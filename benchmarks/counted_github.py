"""A GitHub in memory that counts every call against an hourly limit.

Implements the ports `GitHub`, `GitHubLists` and `Reruns`. A call costs what it costs at GitHub: each page of
100 is one call. A page that has not changed since it was last read is answered 304 and free, unless
`always_counts`. The share of the limit that is reserved for important requests is the product's.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

from autoscaler.controller.ports.github import (
    NewRegistration,
    Redelivered,
    RegisteredRunner,
    RerunAnswer,
    RetryLaterError,
    RunnerBusyError,
)
from autoscaler.controller.ports.github_lists import ListedRepository, ListedRun, Listing
from autoscaler.github.deliveries import OVERLAP
from autoscaler.github.lists.reader import FASTEST
from autoscaler.github.requests.budget import RESERVES
from autoscaler.github.requests.exchange import Importance
from autoscaler.model.events import JobObserved
from autoscaler.model.identifiers import Instant, JobId, RunnerName, Seconds
from autoscaler.model.jobs.job import RunOrigin
from autoscaler.model.jobs.runner_group_excess import RunnerGroup
from autoscaler.model.machines.interruptions import RerunOutcome
from benchmarks.hosted_actions import HostedActions, HostedRun

T = TypeVar("T")
HOUR: Seconds = 3600.0
LATENCY: Seconds = 0.3
PAGE = 100


class CountedGitHub:
    """`calls` counts by kind, `unchanged` what was free, `refused` what the hour had no room for.

    `limit` is of an hour, `used` what has counted in it and `most_used` in any; registrations are
    not in it, for they have a bucket of their own. `delivered` are the moments of deliveries, as
    the App's log has them.
    """

    def __init__(
        self,
        actions: HostedActions,
        now: Callable[[], Instant],
        limit: int,
        *,
        always_counts: bool,
    ) -> None:
        self.calls: Counter[str] = Counter()
        self.unchanged: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.used = self.most_used = 0
        self.delivered: deque[Instant] = deque()
        self._actions = actions
        self._now = now
        self._limit = limit
        self._always_counts = always_counts
        self._since = now()
        self._seen: dict[tuple[str, str | int, int], int] = {}

    async def register(
        self, scope: str, runner_group: str, name: RunnerName, labels: tuple[str, ...]
    ) -> NewRegistration:
        """Register a runner."""
        del scope, runner_group, labels  # there is one of each here
        self.calls["register"] += 1
        await asyncio.sleep(LATENCY)
        made = self._actions.register(name)
        return NewRegistration(made.id, f"SECRET-JIT-{made.id}")

    async def find_runner(self, scope: str, name: RunnerName) -> RegisteredRunner | None:
        """Return a registration by its name, or None."""
        del scope
        await self._ask("check", Importance.CHECK)
        found = self._actions.registered.get(name)
        return found.listed() if found is not None else None

    async def read_runner(self, scope: str, github_id: int) -> RegisteredRunner | None:
        """Return a registration by its ID, or None."""
        del scope
        await self._ask("check", Importance.CHECK)
        registered = self._actions.registered.values()
        found = next((runner for runner in registered if runner.id == github_id), None)
        return found.listed() if found is not None else None

    async def delete_runner(self, scope: str, github_id: int) -> bool:
        """Delete a registration, unless its runner has a job."""
        del scope
        await self._ask("remove", Importance.REMOVE)
        registered = self._actions.registered.values()
        found = next((runner for runner in registered if runner.id == github_id), None)
        if found is None:
            return False
        if found.job is not None:
            raise RunnerBusyError("422 is still running a job")
        self._actions.delete(found)
        return True

    async def read_job(self, repository: str, job: JobId, now: Instant) -> JobObserved | None:
        """Return what GitHub shows of a job, or None."""
        del repository
        await self._ask("check", Importance.CHECK)
        found = self._actions.jobs.get(job)
        return found.fact(now, read=True) if found is not None else None

    async def run_origin(self, repository: str, run_id: int) -> RunOrigin | None:
        """Return an origin that every SKU admits: no run comes from a fork."""
        del repository, run_id
        await self._ask("check", Importance.CHECK)
        return RunOrigin(False, False, "main")

    async def runner_group(self, scope: str, name: str) -> RunnerGroup:
        """Return the only runner group."""
        del scope, name
        await self._ask("check", Importance.CHECK)
        return RunnerGroup("all", allows_public_repositories=False, restricted_to_workflows=False)

    async def redeliver_failed(self, since: Instant) -> Redelivered:
        """Read the pages of deliveries since then. Lost deliveries are not in them."""
        while self.delivered and self.delivered[0] < since - OVERLAP:
            self.delivered.popleft()
        await self._ask("deliveries", Importance.SYNC, 1 + len(self.delivered) // PAGE)
        return Redelivered(0, self._now())

    async def close(self) -> None:
        """Do nothing: nothing is open."""

    async def rerun(
        self, repository: str, run_id: int, run_attempt: int, jobs: Sequence[JobId]
    ) -> RerunAnswer:
        """Refuse to re-run jobs: no job is interrupted here."""
        del repository, run_id, run_attempt
        await self._ask("rerun", Importance.CHECK)
        return RerunAnswer(tuple(jobs), RerunOutcome.REFUSED)

    async def repositories(self, scope: str) -> Listing[ListedRepository]:
        """List all repositories, each pushed to just now."""

        def read() -> tuple[list[ListedRepository], list[Hashable]]:
            listed = [ListedRepository(name, self._now()) for name in self._actions.runs]
            return listed, [*listed]

        return await self._list("sync repositories", scope, read)

    async def newest_repositories(self, scope: str) -> Listing[ListedRepository]:
        """List 30 repositories, all created before the benchmark."""

        def read() -> tuple[list[ListedRepository], list[Hashable]]:
            listed = [ListedRepository(name, self._now(), 0.0) for name in self._actions.runs]
            return listed[:30], [*listed[:30]]

        return await self._list("sync repositories", f"{scope} newest", read)

    async def newest_runs(self, repository: str) -> Listing[ListedRun]:
        """List the newest 100 runs."""
        runs = self._actions.runs[repository]
        return await self._runs(
            "sync runs",
            f"{repository} newest",
            lambda: [runs[number] for number in list(runs)[-PAGE:]],
        )

    async def runs(self, repository: str, status: str) -> Listing[ListedRun]:
        """List all runs in a state."""
        runs = self._actions.runs[repository]
        return await self._runs(
            "sync runs",
            f"{repository} {status}",
            lambda: [run for run in runs.values() if run.status == status],
        )

    async def run(self, repository: str, run_id: int) -> Listing[ListedRun]:
        """List a run; nothing if it does not exist."""
        runs = self._actions.runs[repository]
        return await self._runs(
            "sync runs", run_id, lambda: [runs[run_id]] if run_id in runs else []
        )

    async def jobs(self, repository: str, run_id: int, now: Instant) -> Listing[JobObserved]:
        """List a run's jobs with their states at this moment."""

        def read() -> tuple[list[JobObserved], list[Hashable]]:
            found = self._actions.runs[repository].get(run_id)
            jobs = list(found.jobs.values()) if found is not None else []
            return [job.fact(now, read=True) for job in jobs], [(j.id, j.state) for j in jobs]

        return await self._list("sync jobs", run_id, read)

    async def runners(self, scope: str) -> Listing[RegisteredRunner]:
        """List every registration."""

        def read() -> tuple[list[RegisteredRunner], list[Hashable]]:
            listed = [runner.listed() for runner in self._actions.registered.values()]
            return listed, [*listed]

        return await self._list("sync runners", scope, read)

    async def runner_version_end(self, scope: str, version: str) -> Instant | None:
        """Return None: no newer version exists."""

        def read() -> tuple[list[Instant], list[Hashable]]:
            return [], [version]

        await self._list("sync versions", scope, read)
        return None

    def pace(self, scope: str) -> float:
        """Return the calls per second as the product computes them, without the reserved share."""
        del scope
        now = self._now()
        self._roll(now)
        free = self._limit * (1.0 - RESERVES[Importance.SYNC]) - self.used
        return min(FASTEST, max(0.0, free) / max(1.0, self._since + HOUR - now))

    async def _runs(
        self, kind: str, of: str | int, read: Callable[[], list[HostedRun]]
    ) -> Listing[ListedRun]:
        def both() -> tuple[list[ListedRun], list[Hashable]]:
            found = read()
            return [run.listed() for run in found], [run.shown() for run in found]

        return await self._list(kind, of, both)

    async def _list(
        self, kind: str, of: str | int, read: Callable[[], tuple[Sequence[T], Sequence[Hashable]]]
    ) -> Listing[T]:
        await asyncio.sleep(LATENCY / 2)
        items, shown = read()
        pages = range(0, max(1, len(shown)), PAGE)
        changed = sum(self._has_changed((kind, of, p), shown[p : p + PAGE]) for p in pages)
        self._charge(kind, Importance.SYNC, changed)
        self.unchanged[kind] += len(pages) - changed
        await asyncio.sleep(LATENCY / 2)
        return Listing(items, changed)

    def _has_changed(self, page: tuple[str, str | int, int], shown: Sequence[Hashable]) -> bool:
        mark = hash(tuple(shown))
        before, self._seen[page] = self._seen.get(page), mark
        return self._always_counts or before != mark

    async def _ask(self, kind: str, importance: Importance, calls: int = 1) -> None:
        self._charge(kind, importance, calls)
        await asyncio.sleep(LATENCY)

    def _charge(self, kind: str, importance: Importance, calls: int) -> None:
        """Charge a call. Raises RetryLaterError if the rest is reserved for more important calls."""
        now = self._now()
        self._roll(now)
        if self.used + calls > self._limit * (1.0 - RESERVES[importance]):
            self.refused[kind] += 1
            raise RetryLaterError("held: kept for what matters more", self._since + HOUR - now)
        self.used += calls
        self.most_used = max(self.most_used, self.used)
        self.calls[kind] += calls

    def _roll(self, now: Instant) -> None:
        if now >= self._since + HOUR:
            self._since, self.used = now, 0
