"""Prices as they are read and used."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from autoscaler.model.catalogue import CapacityType
from autoscaler.model.prices import Price, PriceSource


class PriceReader(Protocol):
    """A provider whose prices can be read."""

    @property
    def price_kinds(self) -> Collection[CapacityType]:
        """The capacity types whose prices are worth reading; others are never asked for."""

    async def read_prices(self, capacity_type: CapacityType) -> tuple[Price, ...]:
        """Every price of this capacity type that the configuration can use, read to the end.

        A price that the provider does not list is left out. Raises ProviderError,
        OutcomeUnknownError.
        """

    def use_prices(self, prices: Sequence[Price], source: PriceSource) -> bool:
        """Use these from now on, for what they name; return True if anything costs another price."""

    def price_sources(self, capacity_type: CapacityType) -> Mapping[PriceSource, int]:
        """How many of the configured prices come from where now."""

    def spot_prices(self) -> tuple[Price, ...]:
        """The spot prices in use."""
