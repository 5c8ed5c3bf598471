"""Polls periodically: lists providers' machines, redelivers failed webhooks, writes the heartbeat.

Records the results as events; the planner decides what follows.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

import structlog

from autoscaler.controller.journal import Journal
from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.github import GitHub, GitHubError, RetryLaterError
from autoscaler.controller.ports.provider import OutcomeUnknownError, Provider, ProviderError
from autoscaler.controller.ports.store import Store
from autoscaler.controller.wakeups import Wakeups
from autoscaler.model.events import ListedMachine, MachinesListed, QuotasRead
from autoscaler.model.identifiers import Instant, ProviderMachineId, ProviderName, Seconds

LIST_EVERY: Seconds = 30.0
LIST_SOON: Seconds = 2.0

LISTED_AT_ONCE = 1000
"""Machines of a listing that are recorded in one step of the event loop."""

UPKEEP_EVERY: Seconds = 600.0
REDELIVER_EVERY: Seconds = 20.0
REDELIVERY_WINDOW: Seconds = 3 * 86400.0
"""GitHub redelivers for three days (docs.github.com, webhooks: redelivering)."""

HEARTBEAT_EVERY: Seconds = 10.0
PRUNE_EVERY: Seconds = 3600.0
ROWS_KEPT_FOR: Seconds = 4 * 86400.0

PeriodicTask = Callable[[], Coroutine[Any, Any, None]]
"""A further periodic task, run until it returns or is cancelled. Raises only StoreError."""

AfterQuotas = Callable[
    [ProviderName, ProviderError | OutcomeUnknownError | None], Coroutine[Any, Any, None]
]
"""Called after a provider's quotas were read, or with the error. Logs the error. Raises only StoreError."""

AfterListing = Callable[[ProviderName], Coroutine[Any, Any, None]]
"""Called after a provider's machines were listed. Raises only StoreError."""

_log = structlog.get_logger(__name__)


class Poller:
    """Runs each periodic task separately, so that an error in one does not stop the others."""

    def __init__(
        self,
        journal: Journal,
        store: Store,
        github: GitHub,
        providers: Mapping[ProviderName, Provider],
        clock: Clock,
        tasks: Sequence[PeriodicTask],
        quotas_read: AfterQuotas,
        machines_listed: AfterListing,
    ) -> None:
        """`tasks` run beside the poller's own.

        `quotas_read` is called after each attempt to read quotas, `machines_listed` after each complete list.
        """
        self._journal = journal
        self._store = store
        self._github = github
        self._providers = providers
        self._clock = clock
        self._arrived_until = clock.now()
        self._tasks = tasks
        self._quotas_read = quotas_read
        self._machines_listed = machines_listed
        self._listing_requested = {name: asyncio.Event() for name in providers}
        self._lists_begun = dict.fromkeys(providers, 0)
        self._refused_for: dict[ProviderName, Seconds] = {}
        self._listed: Wakeups[tuple[ProviderName, int]] = Wakeups(clock)
        self.github_answered = False

    def resume(self, arrived_until: Instant | None) -> None:
        """Check deliveries since then, or since now if None.

        `arrived_until` may come from a clock that was ahead. It is then ignored, and deliveries of the
        whole redelivery window are checked.
        """
        now = self._clock.now()
        since = now if arrived_until is None else arrived_until
        self._arrived_until = since if since <= now else now - REDELIVERY_WINDOW

    async def list_now(self, provider: ProviderName, patience: Seconds) -> None:
        """List a provider's machines as soon as possible, and wait up to `patience` seconds for the list."""
        if provider not in self._lists_begun:
            return
        self._listing_requested[provider].set()
        await self._listed.wait((provider, self._lists_begun[provider]), patience)

    async def run(self) -> None:
        """Run until cancelled. Raises StoreError."""
        async with asyncio.TaskGroup() as group:
            for name in self._providers:
                group.create_task(self._list_repeatedly(name))
                group.create_task(self._maintain(name))
            group.create_task(self._redeliver_repeatedly())
            group.create_task(self._record_heartbeats())
            group.create_task(self._prune_repeatedly())
            for task in self._tasks:
                group.create_task(task())

    async def list_machines(self, name: ProviderName) -> bool:
        """List a provider's machines once. Return False if the listing is incomplete."""
        began_at = self._journal.now
        self._refused_for[name] = 0.0
        machines: list[ListedMachine] = []
        complete = True
        try:
            async for page in self._providers[name].machines():
                machines.extend(page)
        except (ProviderError, OutcomeUnknownError) as error:
            _log.warning("list_incomplete", provider=name, error=str(error))
            complete = False
            self._refused_for[name] = error.retry_after or 0.0
        shown, last = await self._record_listing(name, began_at, machines)
        await self._journal.record(
            MachinesListed(
                self._journal.now, name, began_at, complete, last, shown=frozenset(shown)
            )
        )
        if complete:
            await self._machines_listed(name)
        return complete

    async def _record_listing(
        self, name: ProviderName, began_at: Instant, machines: Sequence[ListedMachine]
    ) -> tuple[set[ProviderMachineId], tuple[ListedMachine, ...]]:
        """Record a listing in pieces and yield to other tasks in between.

        Return the IDs of the recorded machines, and the last piece, which is not recorded yet.
        """
        first, shown = 0, set[ProviderMachineId]()
        while len(machines) - first > LISTED_AT_ONCE:
            piece = tuple(machines[first : first + LISTED_AT_ONCE])
            shown.update(one.provider_id for one in piece)
            now = self._journal.now
            self._journal.note(MachinesListed(now, name, began_at, False, piece, more=True))
            first += LISTED_AT_ONCE
            await asyncio.sleep(0)
        return shown, tuple(machines[first:])

    async def _list_repeatedly(self, name: ProviderName) -> None:
        soon = self._listing_requested[name]
        while True:
            soon.clear()
            # A request made while a listing is under way waits for the next listing.
            before = self._lists_begun[name]
            self._lists_begun[name] += 1
            await self.list_machines(name)
            self._listed.wake((name, before))
            await self._clock.sleep(max(LIST_SOON, self._refused_for[name]))
            await self._first(soon, LIST_EVERY - LIST_SOON)

    async def _first(self, event: asyncio.Event, seconds: Seconds) -> None:
        """Wait until the event is set, or for `seconds`."""
        sleeper = asyncio.ensure_future(self._clock.sleep(seconds))
        waiter = asyncio.ensure_future(event.wait())
        try:
            await asyncio.wait({sleeper, waiter}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeper.cancel()
            waiter.cancel()

    async def _maintain(self, name: ProviderName) -> None:
        """Read a provider's quotas and delete unused resources, every `UPKEEP_EVERY`."""
        while True:
            problem: ProviderError | OutcomeUnknownError | None = None
            try:
                quotas = await self._providers[name].quotas()
            except (ProviderError, OutcomeUnknownError) as error:
                problem = error
            else:
                found = tuple(sorted(quotas.items()))
                await self._journal.record(QuotasRead(self._journal.now, name, found))
            await self._quotas_read(name, problem)
            try:
                deleted = await self._providers[name].delete_unused(self._sendable(name))
            except (ProviderError, OutcomeUnknownError) as error:
                _log.warning("resources_not_deleted", provider=name, error=str(error))
            else:
                if deleted:
                    _log.info("resources_deleted", provider=name, ids=deleted)
            await self._clock.sleep(UPKEEP_EVERY)

    def _sendable(self, name: ProviderName) -> list[str]:
        requests = self._journal.ledger.state.open_launch_requests.values()
        return [one.body for one in requests if one.provider == name and one.body]

    async def _redeliver_repeatedly(self) -> None:
        while True:
            oldest = self._journal.now - REDELIVERY_WINDOW
            since = max(oldest, self._arrived_until)
            pause = REDELIVER_EVERY
            try:
                done = await self._github.redeliver_failed(since)
            except GitHubError as error:  # logged, with its App, by the adapter
                pause = max(
                    pause, error.retry_after if isinstance(error, RetryLaterError) else 60.0
                )
            else:
                self.github_answered = True
                self._arrived_until = done.arrived_until
            await self._clock.sleep(pause)

    async def _record_heartbeats(self) -> None:
        while True:
            await self._store.record_heartbeat(self._journal.now, self._arrived_until)
            await self._clock.sleep(HEARTBEAT_EVERY)

    async def _prune_repeatedly(self) -> None:
        while True:
            await self._store.prune(self._journal.now - ROWS_KEPT_FOR)
            await self._clock.sleep(PRUNE_EVERY)
