"""Uses the catalogue of a changed configuration, or shows what it would do."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence

from autoscaler.controller.journal import Journal
from autoscaler.model.catalogue import Catalogue
from autoscaler.model.events import ConfigurationReloaded
from autoscaler.model.identifiers import ProviderName
from autoscaler.model.jobs.job import JobState
from autoscaler.model.operators import OperatorName
from autoscaler.planner.planner import plan
from autoscaler.views.preview import Preview, demand_of, preview, under


class Reconfiguration:
    """`opened` returns the providers whose offerings are in use; `read_again` reads one of them.

    `read_again` raises nothing. `use_offerings` puts the offerings of these providers into the catalogue.
    """

    def __init__(
        self,
        journal: Journal,
        opened: Callable[[], Collection[ProviderName]],
        read_again: Callable[[ProviderName], Awaitable[None]],
        use_offerings: Callable[[Collection[ProviderName]], None],
    ) -> None:
        self._journal = journal
        self._opened = opened
        self._read_again = read_again
        self._use_offerings = use_offerings

    @property
    def opened(self) -> Collection[ProviderName]:
        """The providers whose offerings are in use."""
        return self._opened()

    @property
    def catalogue(self) -> Catalogue:
        """The catalogue in use."""
        return self._journal.ledger.state.catalogue

    async def change_catalogue(
        self, changed: Catalogue, by: OperatorName, keys: Sequence[str]
    ) -> int:
        """Use another catalogue, and wake the planner. Return how many jobs have other SKUs since.

        It is in use before the first await. On return, the history has who (`by`) changed which keys.
        Raises: StoreError.
        """
        moved = self._journal.ledger.change_catalogue(changed)
        await self.note_reload(by, keys)
        return moved

    async def note_reload(self, by: OperatorName, keys: Sequence[str]) -> None:
        """Record in the history who (`by`) changed which keys. Raises StoreError."""
        await self._journal.record(ConfigurationReloaded(self._journal.now, by, tuple(keys)))

    def machines_at(self, provider: ProviderName | None) -> int:
        """Return how many machines a provider has, or all providers (None), with those that launch."""
        machines = self._journal.ledger.state.machines.values()
        return sum(one.occupies and provider in (None, one.provider) for one in machines)

    async def read_providers_again(self) -> None:
        """Read what new SKUs need from the open providers, and use it."""
        for name in sorted(self._opened()):
            await self._read_again(name)
        if opened := self._opened():  # another provider may have opened meanwhile
            self._use_offerings(opened)
            self._journal.changed.set()

    async def preview(self, changed: Catalogue) -> Preview:
        """Return what the planner would do with another catalogue. Changes nothing.

        The jobs are sorted in a thread, and one plan is made in the event loop.
        """
        state = self._journal.ledger.state
        queued = [job for job in state.jobs.values() if job.state is JobState.QUEUED]
        demand = await asyncio.to_thread(demand_of, changed, queued)
        fleet = under(self._journal.fleet(), demand)
        return preview(fleet, plan(fleet))
