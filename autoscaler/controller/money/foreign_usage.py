"""Stores how many machines of other installations each provider has, and what they cost.

After a restart, these numbers count against the limits of the fleet and of SKUs until the provider's machines
are listed. Otherwise launches at other providers could exceed these limits while this one cannot be listed.
"""

from collections.abc import Collection

from autoscaler.controller.journal import Journal
from autoscaler.controller.ports.store import Store
from autoscaler.ledger.machines.foreign import usage_of
from autoscaler.model.identifiers import ProviderName, SkuName
from autoscaler.model.prices_and_quotas import ForeignUsage, Reading, ReadingKind

_MACHINES, _DOLLARS = "machines/", "dollars_per_hour/"
"""Each SKU has two readings, with these prefixes before its name."""


class KeptForeignUsage:
    """Foreign machines of all providers. Call `load` first, and `save` after each complete list."""

    def __init__(self, journal: Journal, providers: Collection[ProviderName], store: Store) -> None:
        self._journal = journal
        self._providers = providers
        self._store = store
        self._saved: dict[ProviderName, ForeignUsage] = {}

    async def load(self) -> None:
        """Count the stored numbers against the limits. Raises StoreError."""
        for name in self._providers:
            readings = await self._store.load_readings(name, ReadingKind.FOREIGN_USAGE)
            values = {one.name: one.value for one in readings}
            usage = {
                SkuName(sku): (int(machines), values.get(_DOLLARS + sku, 0.0))
                for prefixed, machines in values.items()
                if (sku := prefixed.removeprefix(_MACHINES)) != prefixed
            }
            self._saved[name] = usage
            self._journal.ledger.restore_foreign(name, usage)

    async def save(self, name: ProviderName) -> None:
        """Store the numbers of a provider, if they have changed. Raises StoreError."""
        usage = self._usage(name)
        if usage == self._saved.get(name):
            return
        now = self._journal.now
        readings = [
            reading
            for sku, (machines, dollars) in usage.items()
            for reading in (
                Reading(_MACHINES + sku, machines, now),
                Reading(_DOLLARS + sku, dollars, now),
            )
        ]
        self._saved[name] = usage
        await self._store.save_readings(name, ReadingKind.FOREIGN_USAGE, readings)

    def _usage(self, name: ProviderName) -> ForeignUsage:
        """Return the usage by the SKUs of this fleet, because tags of others may have any text."""
        state = self._journal.ledger.state
        known: dict[SkuName, tuple[int, float]] = {}
        for sku, (machines, dollars) in usage_of(state, name).items():
            key = sku if sku in state.catalogue.skus else SkuName("")
            counted, cost = known.get(key, (0, 0.0))
            known[key] = counted + machines, cost + dollars
        return known
