"""Stores numbers that providers returned, for use after a restart: see `ReadingKind`."""

from collections.abc import Sequence
from typing import Protocol

from autoscaler.model.identifiers import ProviderName
from autoscaler.model.prices_and_quotas import Reading, ReadingKind


class ReadingCache(Protocol):
    """Stores the last readings. Every method raises StoreError and nothing else."""

    async def load_readings(self, provider: ProviderName, kind: ReadingKind) -> tuple[Reading, ...]:
        """Return the stored readings of this provider and kind, by name."""

    async def save_readings(
        self, provider: ProviderName, kind: ReadingKind, readings: Sequence[Reading]
    ) -> None:
        """Replace all stored readings of this provider and kind. Durable on return."""
