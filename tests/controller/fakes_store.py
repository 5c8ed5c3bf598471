"""The simulator's store, whose readings can fail apart from the rest."""

from collections.abc import Sequence

from autoscaler.controller.ports.store import StoreError
from autoscaler.model.identifiers import ProviderName
from autoscaler.model.prices_and_quotas import Reading, ReadingKind
from autoscaler.simulator.world.controller.store import INSTALLATION as INSTALLATION
from autoscaler.simulator.world.controller.store import MemoryStore


class FakeStore(MemoryStore):
    """A store in memory. While `readings_broken` is set, it takes no readings."""

    readings_broken = False

    async def save_readings(
        self, provider: ProviderName, kind: ReadingKind, readings: Sequence[Reading]
    ) -> None:
        if self.readings_broken:
            raise StoreError("the disk is full")
        await super().save_readings(provider, kind, readings)
