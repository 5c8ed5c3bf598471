"""Readings in memory."""

import asyncio
from collections.abc import Sequence

from autoscaler.controller.ports.store import StoreError
from autoscaler.model.identifiers import ProviderName
from autoscaler.model.prices_and_quotas import Reading, ReadingKind


class FakeReadings:
    """Implements `ReadingCache`. It outlives a controller, as the store does."""

    def __init__(self) -> None:
        self.kept: dict[tuple[ProviderName, ReadingKind], tuple[Reading, ...]] = {}
        self.broken = False

    async def load_readings(self, provider: ProviderName, kind: ReadingKind) -> tuple[Reading, ...]:
        await asyncio.sleep(0.005)
        return self.kept.get((provider, kind), ())

    async def save_readings(
        self, provider: ProviderName, kind: ReadingKind, readings: Sequence[Reading]
    ) -> None:
        await asyncio.sleep(0.005)
        if self.broken:
            raise StoreError("the disk is full")
        self.kept[provider, kind] = tuple(readings)
