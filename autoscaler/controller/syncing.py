"""Reads GitHub's lists inside a budget of calls, so that a lost webhook costs a minute and no more.

It keeps the pace: as many questions a second as every account has to spare, given back where GitHub
answers that nothing has changed. What to read next is the schedule's to say, what it means the
book's; what follows from it is planned elsewhere.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from itertools import count

import structlog

from autoscaler.controller.github_reader import GitHubReader
from autoscaler.controller.journal import Journal
from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.github import GitHub, GitHubError, RetryLaterError, RunnerBusyError
from autoscaler.controller.ports.github_lists import GitHubLists, ListedRun
from autoscaler.controller.ports.telemetry import Telemetry
from autoscaler.controller.sync_registrations import Registrations
from autoscaler.controller.sync_schedule import BY_STATUS, Kind, Read, next_reads, staleness
from autoscaler.controller.sync_state import SyncState, news, run_origins
from autoscaler.ledger.restored import needs_runner_list
from autoscaler.model.events import JobObserved, RunnersListed
from autoscaler.model.identifiers import Instant, Seconds

TICK: Seconds = 1.0
TOLD_EVERY = 5
"""Ticks from one word on the staleness to the next: it takes a look at everything."""

LEDGER_EVERY: Seconds = 5.0
AT_ONCE = 10
"""How many readings may be under way, and begin in one tick: 600 a minute, of GitHub's 900 points."""

PAID_AT_ONCE = 10
"""Pages beyond the first that are paid for at once: runs of many jobs have a few, and all the time."""

PAID_BACK = 0.25
"""The share of the pace that pays for a list of more pages, so that all else is read meanwhile."""

CLOCKS_DIFFER: Seconds = 60.0
"""By how much GitHub's clock may be behind ours."""

SAVED_FOR: Seconds = 30.0
"""How much of the pace may be saved up and spent at once."""

LISTED_AT_ONCE = 5000
"""Registrations of a list that are taken in before everything else has a turn."""

TROUBLE_AFTER = 3
"""How many failures in a row are an outage: the account is then left alone for a while."""

_log = structlog.get_logger(__name__)

Recall = Callable[[JobObserved], Awaitable[None]]
"""Brings a job that has left memory back from the store."""


class Syncing:
    """One task for each account, so that one's trouble is not another's."""

    def __init__(
        self,
        journal: Journal,
        lists: GitHubLists,
        github: GitHub,
        recall: Recall,
        telemetry: Telemetry,
        clock: Clock,
    ) -> None:
        self._journal = journal
        self._lists = lists
        self._github = github
        self._recall = recall
        self._telemetry = telemetry
        self._clock = clock

    async def run(self) -> None:
        """Run until cancelled. Raises StoreError."""
        scopes: dict[str, list[str]] = {}
        for scope in self._journal.ledger.state.catalogue.scopes:
            scopes.setdefault(scope.owner.lower(), []).append(scope.key)
        async with asyncio.TaskGroup() as group:
            for account, keys in scopes.items():
                book = SyncState(account, keys, self._clock.now())
                sync = _AccountSync(
                    book, keys, self._journal, self._lists, self._github, self._recall, self._clock
                )
                group.create_task(self._of_account(sync))

    async def _of_account(self, sync: "_AccountSync") -> None:
        async with asyncio.TaskGroup() as readings:
            for tick in count():
                sync.tick(readings)
                if tick % TOLD_EVERY == 0:
                    self._telemetry.github_staleness(sync.book.account, sync.staleness)
                    self._telemetry.github_unwatched(sync.book.account, sync.book.left_out)
                await self._clock.sleep(TICK)


class _AccountSync:
    """One account: its book, its budget, and its readings under way."""

    def __init__(
        self,
        book: SyncState,
        scopes: list[str],
        journal: Journal,
        lists: GitHubLists,
        github: GitHub,
        recall: Recall,
        clock: Clock,
    ) -> None:
        self.book = book
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
        self._failures = 0
        self._not_before: Instant = 0.0
        self._listed_at: dict[str, Instant] = {}

    @property
    def staleness(self) -> Seconds:
        """How old the oldest picture of something active is."""
        now = self._clock.now()
        return staleness(self.book.known(now), now)

    def tick(self, readings: asyncio.TaskGroup) -> None:
        """Begin what is due and can be paid for. O(repositories and runs)."""
        now = self._clock.now()
        self._refill(now)
        if now - self._ledger_at >= LEDGER_EVERY:
            self._ledger_at = now
            self.book.look_at(self._journal.ledger.state, now)
        if now < self._not_before:
            return
        most = min(AT_ONCE - len(self._under_way), int(self._level))
        for read in next_reads(self.book.known(now), now, most, self._under_way):
            self._under_way.add(read)
            self._level -= 1.0
            readings.create_task(self._read(read))

    def _refill(self, now: Instant) -> None:
        pace = self._lists.pace(self._scope)
        gained = pace * (now - self._filled_at)
        # New runs go first: with half of the pace gone, what comes after them would not be read.
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
            self.book.was_read(read, began_at, calls)
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
        # What GitHub does not let us read says nothing of the others; an outage nothing of this one.
        outage = isinstance(error, RetryLaterError) and self._failures >= TROUBLE_AFTER
        failures = self.book.was_not_read(read, began_at, strike=not outage)
        tell = _log.info if outage or failures & (failures - 1) else _log.warning
        tell(
            "not_read",
            account=self.book.account,
            kind=read.kind,
            of=read.of,
            run=read.run or None,
            times=failures,
            error=str(error),
        )
        if isinstance(error, RetryLaterError) and outage:
            until = self._clock.now() + error.retry_after
            self._not_before = max(self._not_before, until)
            _log.warning("sync_paused", account=self.book.account, error=str(error))

    async def _carry_out(self, read: Read, began_at: Instant) -> int:
        """Read it and take it in; how many of the list's answers counted.

        GitHubReader about a job and removing a runner are not of this budget: the pace comes down by them.
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
        await self._take_in_runs(read.of, runs.items)
        return runs.calls

    async def _read_repositories(self, scope: str, began_at: Instant) -> int:
        listed = await self._lists.repositories(scope)
        self._listed_at[scope] = began_at
        state = self._journal.ledger.state
        left_out = self.book.listed_repositories(scope, listed.items, state, listed.whole)
        if left_out:
            _log.warning("repositories_unwatched", scope=scope, repositories=left_out)
        return listed.calls

    async def _read_created(self, scope: str) -> int:
        """Look at repositories created since the last list of all began: that one names the App's own."""
        listed = await self._lists.newest_repositories(scope)
        since = self._listed_at.get(scope, math.inf) - CLOCKS_DIFFER
        for one in listed.items:
            if one.created_at is not None and one.created_at >= since:
                seen_at = max(one.created_at, one.pushed_at or 0.0)
                self.book.saw(one.name, seen_at, self._journal.ledger.state)
        return listed.calls

    async def _read_run(self, read: Read) -> int:
        found = await self._lists.run(read.of, read.run)
        if found.items:
            await self._take_in_runs(read.of, found.items)
        else:
            self.book.run_is_not_there(read.of, read.run, self._clock.now())
        return found.calls

    async def _take_in_runs(self, repository: str, runs: Sequence[ListedRun]) -> None:
        now = self._clock.now()
        self.book.listed_runs(repository, runs, now)
        events = run_origins(self._journal.ledger.state, runs, now)
        if events:
            await self._journal.record(*events)

    async def _read_jobs(self, read: Read) -> int:
        listed = await self._lists.jobs(read.of, read.run, self._clock.now())
        state = self._journal.ledger.state
        for seen in listed.items:
            if seen.id not in state.jobs and news(state, seen) is not None:
                await self._recall(seen)
        key, now = (read.of, read.run), self._clock.now()
        findings = self.book.listed_jobs(key, listed.items, state, now)
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
                # Final for now: it was at work after all, and is looked at anew.
                _log.warning("registration_busy", runner=runner.name, error=str(error))
                continue
            _log.info("registration_removed", runner=runner.name, there=removed)
        # Two lists take a lost registration away, and one says who is at work since a start.
        self.book.list_soon(scope, registrations.suspects or needs_runner_list(state))
        return listed.calls
