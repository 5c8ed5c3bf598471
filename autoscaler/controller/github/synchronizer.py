"""Reads GitHub's lists within a budget of calls, so that a lost webhook delays a job by about a minute.

Each account has a rate of calls a second; a 304 answer (nothing changed) costs nothing. `read_schedule`
chooses the next read, and `account_state` turns answers into events.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from itertools import count

import structlog

from autoscaler.controller.github.account_state import SyncState, event_if_new, run_origins
from autoscaler.controller.github.orphans import Registrations
from autoscaler.controller.github.read_schedule import (
    BY_STATUS,
    Kind,
    Read,
    due_runner_lists,
    next_reads,
    staleness,
)
from autoscaler.controller.github.single_reads import GitHubReader
from autoscaler.controller.journal import Journal
from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.github import GitHub, GitHubError, RetryLaterError, RunnerBusyError
from autoscaler.controller.ports.github_lists import GitHubLists, ListedRun
from autoscaler.controller.ports.telemetry import Telemetry
from autoscaler.controller.reporting.log_fields import runner_name_fields
from autoscaler.ledger.machines.unverified import awaits_runner_list, needs_runner_list
from autoscaler.model.events import JobObserved, RunnersListed
from autoscaler.model.identifiers import Instant, Seconds

TICK: Seconds = 1.0
REPORTED_EVERY = 5
"""Ticks between two reports of the staleness, which takes O(repositories and runs) to compute."""

LEDGER_EVERY: Seconds = 5.0
AT_ONCE = 10
"""Maximum number of concurrent reads, and of reads begun in one tick: 600 of GitHub's 900 points a minute."""

PAID_AT_ONCE = 10
"""The budget pays up to this many pages beyond the first at once, and further pages later, as debt."""

PAID_BACK = 0.25
"""The share of the rate that pays debt, so that other lists are read meanwhile."""

CLOCKS_DIFFER: Seconds = 60.0
"""By how much GitHub's clock may be behind the controller's."""

SAVED_FOR: Seconds = 30.0
"""Seconds of the rate that may be saved up."""

LISTED_AT_ONCE = 5000
"""Registrations of a list that are recorded in one step of the event loop."""

TROUBLE_AFTER = 3
"""From this number of failures in a row on, the account's sync pauses until GitHub's retry-after."""

_log = structlog.get_logger(__name__)

Recall = Callable[[JobObserved], Awaitable[None]]
"""Loads a job from the store that is no longer in memory."""


async def synchronize(
    journal: Journal,
    lists: GitHubLists,
    github: GitHub,
    recall: Recall,
    telemetry: Telemetry,
    clock: Clock,
) -> None:
    """Read GitHub's lists until cancelled. Raises StoreError.

    Each account has a task of its own, so that one account's errors do not affect others.
    """
    scopes: dict[str, list[str]] = {}
    for scope in journal.ledger.state.catalogue.scopes:
        scopes.setdefault(scope.owner.lower(), []).append(scope.key)
    async with asyncio.TaskGroup() as group:
        for account, keys in scopes.items():
            sync = _AccountSync(account, keys, journal, lists, github, recall, clock)
            group.create_task(sync.run(telemetry))


class _AccountSync:
    """The sync of one account: its state, its budget, and its reads under way."""

    def __init__(
        self,
        account: str,
        scopes: list[str],
        journal: Journal,
        lists: GitHubLists,
        github: GitHub,
        recall: Recall,
        clock: Clock,
    ) -> None:
        self.state = SyncState(account, scopes, clock.now())
        self._scope = scopes[0]
        self._registrations = {scope: Registrations() for scope in scopes}
        self._journal = journal
        self._lists = lists
        self._github = github
        self._github_reader = GitHubReader(journal, github)
        self._recall = recall
        self._clock = clock
        self._under_way: set[Read] = set()
        self._level, self._owed, self._filled_at = 0.0, 0.0, clock.now()
        self._ledger_at: Instant = 0.0
        self._awaits_runners = False
        """Whether lists of runners are read without calls to spare, because nothing else verifies a machine."""
        self._failures = 0
        self._not_before: Instant = 0.0
        self._listed_at: dict[str, Instant] = {}

    async def run(self, telemetry: Telemetry) -> None:
        """Read this account's lists until cancelled. Raises StoreError."""
        async with asyncio.TaskGroup() as readings:
            for tick in count():
                self.tick(readings)
                if tick % REPORTED_EVERY == 0:
                    age = staleness(self.state.known, self._clock.now())
                    telemetry.github_staleness(self.state.account, age)
                    telemetry.github_unwatched(self.state.account, self.state.unwatched)
                await self._clock.sleep(TICK)

    def tick(self, readings: asyncio.TaskGroup) -> None:
        """Begin the reads that are due and fit the budget. O(repositories and runs)."""
        now = self._clock.now()
        self._refill(now)
        if now - self._ledger_at >= LEDGER_EVERY:
            self._ledger_at = now
            self.state.add_known(self._journal.ledger.state, now)
            self._awaits_runners = awaits_runner_list(self._journal.ledger.state, now)
        if now < self._not_before:
            return
        known, reads = self.state.known, []
        if self._awaits_runners:
            reads = due_runner_lists(known, now, self._under_way)
        most = min(AT_ONCE - len(self._under_way), int(self._level)) - len(reads)
        if most > 0:
            reads += next_reads(known, now, most, self._under_way | set(reads))
        for read in reads:
            self._under_way.add(read)
            self._level -= 1.0
            readings.create_task(self._read(read))

    def _refill(self, now: Instant) -> None:
        pace = self._lists.pace(self._scope)
        gained = pace * (now - self._filled_at)
        # Debt takes only a share of the rate: new runs go first, and the rest must still be read.
        paid = min(self._owed, gained * PAID_BACK)
        self._owed -= paid
        self._level = min(self._level + gained - paid, max(float(AT_ONCE), pace * SAVED_FOR))
        self._filled_at = now

    async def _read(self, read: Read) -> None:
        began_at = self._clock.now()
        try:
            calls = await self._carry_out(read, began_at)
        except GitHubError as error:
            self._failed(read, began_at, error)
        else:
            self._failures = 0
            self.state.was_read(read, began_at, calls)
            self._level += not calls
            beyond = max(0, calls - 1)
            if beyond > PAID_AT_ONCE:
                self._owed += beyond
            else:
                self._level -= beyond
        finally:
            self._under_way.discard(read)

    def _failed(self, read: Read, began_at: Instant, error: GitHubError) -> None:
        self._failures += isinstance(error, RetryLaterError)
        # A refusal concerns this read only. An outage concerns all reads and is no fault of this one.
        outage = isinstance(error, RetryLaterError) and self._failures >= TROUBLE_AFTER
        failures = self.state.was_not_read(read, began_at, counts=not outage)
        log = _log.info if outage or failures & (failures - 1) else _log.warning
        log(
            "list_not_read",
            account=self.state.account,
            kind=read.kind,
            of=read.of,
            run=read.run or None,
            times=failures,
            error=str(error),
        )
        if isinstance(error, RetryLaterError) and outage:
            until = self._clock.now() + error.retry_after
            self._not_before = max(self._not_before, until)
            _log.warning("sync_delayed", account=self.state.account, error=str(error))

    async def _carry_out(self, read: Read, began_at: Instant) -> int:
        """Read a list and record it. Return how many of its answers counted against the rate limit.

        Reads of single jobs and deletions of runners are outside this budget; they lower its rate.
        """
        match read.kind:
            case Kind.REPOSITORIES:
                return await self._read_repositories(read.of, began_at)
            case Kind.CREATED:
                return await self._read_created(read.of)
            case Kind.RUNNERS:
                return await self._read_runners(read.of, began_at)
            case Kind.JOBS:
                return await self._read_jobs(read)
            case Kind.RUN:
                return await self._read_run(read)
        runs = await (
            self._lists.runs(read.of, read.kind)
            if read.kind in BY_STATUS
            else self._lists.newest_runs(read.of)
        )
        await self._record_runs(read.of, runs.items)
        return runs.calls

    async def _read_repositories(self, scope: str, began_at: Instant) -> int:
        listed = await self._lists.repositories(scope)
        self._listed_at[scope] = began_at
        state = self._journal.ledger.state
        unwatched = self.state.listed_repositories(scope, listed.items, state, listed.whole)
        if unwatched:
            _log.warning("repositories_unwatched", scope=scope, repositories=unwatched)
        return listed.calls

    async def _read_created(self, scope: str) -> int:
        """Watch repositories created since the last full list began, which lists only the App's own."""
        listed = await self._lists.newest_repositories(scope)
        since = self._listed_at.get(scope, math.inf) - CLOCKS_DIFFER
        for one in listed.items:
            if one.created_at is not None and one.created_at >= since:
                seen_at = max(one.created_at, one.pushed_at or 0.0)
                self.state.note_activity(one.name, seen_at, self._journal.ledger.state)
        return listed.calls

    async def _read_run(self, read: Read) -> int:
        found = await self._lists.run(read.of, read.run)
        if found.items:
            await self._record_runs(read.of, found.items)
        else:
            self.state.run_is_not_there(read.of, read.run, self._clock.now())
        return found.calls

    async def _record_runs(self, repository: str, runs: Sequence[ListedRun]) -> None:
        now = self._clock.now()
        self.state.listed_runs(repository, runs, now)
        events = run_origins(self._journal.ledger.state, runs, now)
        if events:
            await self._journal.record(*events)

    async def _read_jobs(self, read: Read) -> int:
        listed = await self._lists.jobs(read.of, read.run, self._clock.now())
        state = self._journal.ledger.state
        for seen in listed.items:
            if seen.id not in state.jobs and event_if_new(state, seen) is not None:
                await self._recall(seen)
        key, now = (read.of, read.run), self._clock.now()
        findings = self.state.listed_jobs(key, listed.items, state, now)
        if findings.events:
            await self._journal.record(*findings.events)
        for job in findings.ask:
            await self._github_reader.read_job(job)
        return listed.calls

    async def _read_runners(self, scope: str, began_at: Instant) -> int:
        listed = await self._lists.runners(scope)
        state, registrations = self._journal.ledger.state, self._registrations[scope]
        at_work = tuple(r.name for r in listed.items if r.online or r.busy)
        while len(at_work) > LISTED_AT_ONCE:
            piece, at_work = at_work[:LISTED_AT_ONCE], at_work[LISTED_AT_ONCE:]
            self._journal.note(RunnersListed(self._clock.now(), scope, began_at, piece, more=True))
            await asyncio.sleep(0)
        await self._journal.record(RunnersListed(self._clock.now(), scope, began_at, at_work))
        lost = registrations.listed(listed.items, state, began_at)
        for runner in lost:
            try:
                removed = await self._github.delete_runner(scope, runner.github_id)
            except RunnerBusyError as error:
                # The runner is at work after all. The next lists check it again.
                _log.warning(
                    "registration_busy",
                    **runner_name_fields(state.catalogue.fleet, runner.name),
                    error=str(error),
                )
                continue
            _log.info(
                "registration_deleted",
                **runner_name_fields(state.catalogue.fleet, runner.name),
                existed=removed,
            )
        # Removing a registration needs two lists; after a start, one list shows the runners at work.
        self.state.set_urgent(scope, registrations.suspects or needs_runner_list(state))
        return listed.calls
