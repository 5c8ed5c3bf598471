"""The port through which the controller reads and uses a provider's prices."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from autoscaler.controller.ports.provider_errors import OutcomeUnknownError, ProviderError
from autoscaler.model.catalogue import CapacityType
from autoscaler.model.prices_and_quotas import Price, PriceSource


@dataclass(frozen=True, slots=True)
class PriceAnswer:
    """The prices that a provider listed, and the first error of the requests that failed, if any."""

    prices: tuple[Price, ...]
    problem: ProviderError | OutcomeUnknownError | None = None


class PriceReader(Protocol):
    """A provider that lists its prices."""

    @property
    def price_kinds(self) -> Collection[CapacityType]:
        """The capacity types whose prices the controller reads."""

    async def read_prices(self, capacity_type: CapacityType) -> PriceAnswer:
        """Return the prices of this capacity type that the configuration can use. Raises nothing.

        If a request fails, only the prices of that request are missing.
        """

    def use_prices(self, prices: Sequence[Price], source: PriceSource) -> bool:
        """Use these prices from now on. Return True if an offering has a new price."""

    def price_sources(self, capacity_type: CapacityType) -> Mapping[PriceSource, int]:
        """Return how many of the prices in use come from each source."""

    def known_prices(self, capacity_type: CapacityType) -> tuple[Price, ...]:
        """Return the prices in use that the provider listed, now or before a restart."""
