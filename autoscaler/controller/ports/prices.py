"""Prices as they are read and used."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from autoscaler.controller.ports.provider_errors import OutcomeUnknownError, ProviderError
from autoscaler.model.catalogue import CapacityType
from autoscaler.model.prices import Price, PriceSource


@dataclass(frozen=True, slots=True)
class PriceAnswer:
    """The prices that a provider listed, and the first error of the requests that failed, if any."""

    prices: tuple[Price, ...]
    problem: ProviderError | OutcomeUnknownError | None = None


class PriceReader(Protocol):
    """A provider whose prices can be read."""

    @property
    def price_kinds(self) -> Collection[CapacityType]:
        """The capacity types whose prices are worth reading; others are never asked for."""

    @property
    def fix(self) -> str:
        """What an operator can do if the provider does not permit reading its prices."""

    async def read_prices(self, capacity_type: CapacityType) -> PriceAnswer:
        """Return the prices of this capacity type that the configuration can use. Raises nothing.

        A request that fails leaves out the prices that it asked for, and no others.
        """

    def use_prices(self, prices: Sequence[Price], source: PriceSource) -> bool:
        """Use these from now on, for what they name; return True if anything costs another price."""

    def price_sources(self, capacity_type: CapacityType) -> Mapping[PriceSource, int]:
        """How many of the configured prices come from where now."""

    def known_prices(self, capacity_type: CapacityType) -> tuple[Price, ...]:
        """Return the prices in use that the provider listed, now or before a restart."""
