"""Lists each provider's machines, every `LIST_EVERY` or sooner on request, and records the lists as events."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

import structlog

from autoscaler.controller.effects import PeriodicTask
from autoscaler.controller.journal import Journal
from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.provider import OutcomeUnknownError, Provider, ProviderError
from autoscaler.controller.wakeups import Wakeups, set_within
from autoscaler.model.events import ListedMachine, MachinesListed
from autoscaler.model.identifiers import Instant, ProviderMachineId, ProviderName, Seconds

LIST_EVERY: Seconds = 30.0
LIST_SOON: Seconds = 2.0

LISTED_AT_ONCE = 1000
"""Machines of a listing that are recorded in one step of the event loop."""

_log = structlog.get_logger(__name__)


class MachineLists:
    """Lists each provider in a task of its own, so that one failing provider does not delay the others."""

    def __init__(
        self,
        journal: Journal,
        providers: Mapping[ProviderName, Provider],
        clock: Clock,
        listed: Callable[[ProviderName], Coroutine[Any, Any, None]],
    ) -> None:
        """`listed` is called after each complete list, and raises only StoreError."""
        self._journal = journal
        self._providers = providers
        self._clock = clock
        self._on_listed = listed
        self._requested = {name: asyncio.Event() for name in providers}
        self._begun = dict.fromkeys(providers, 0)
        self._refused_for: dict[ProviderName, Seconds] = {}
        self._listed: Wakeups[tuple[ProviderName, int]] = Wakeups(clock)

    @property
    def tasks(self) -> list[PeriodicTask]:
        """One endless task for each provider."""
        return [partial(self._list_repeatedly, name) for name in self._providers]

    async def list_now(self, provider: ProviderName, patience: Seconds) -> None:
        """List a provider's machines as soon as possible, and wait up to `patience` seconds for the list."""
        if provider not in self._begun:
            return
        self._requested[provider].set()
        await self._listed.wait((provider, self._begun[provider]), patience)

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
        shown, last = await self._record_all_but_last(name, began_at, machines)
        now = self._journal.now
        await self._journal.record(
            MachinesListed(now, name, began_at, complete, last, shown=frozenset(shown))
        )
        if complete:
            await self._on_listed(name)
        return complete

    async def _record_all_but_last(
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
        requested = self._requested[name]
        while True:
            requested.clear()
            # A request made while a listing is under way waits for the next listing.
            before = self._begun[name]
            self._begun[name] += 1
            await self.list_machines(name)
            self._listed.wake((name, before))
            await self._clock.sleep(max(LIST_SOON, self._refused_for[name]))
            await set_within(requested, LIST_EVERY - LIST_SOON, self._clock)
