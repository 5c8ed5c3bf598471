"""Calculates how much less spot machines cost than they count against the limits.

A limit counts a spot machine at its on-demand price, so that it holds at any spot price.
"""

from collections.abc import Iterable, Mapping

from autoscaler.model.catalogue import CapacityType, Catalogue, OperatingSystem
from autoscaler.model.identifiers import ProviderName, SkuName
from autoscaler.model.machines.machine import Machine
from autoscaler.model.prices_and_quotas import Price

_Kind = tuple[ProviderName, str, str, SkuName]
"""A spot machine's provider, instance type, zone and SKU."""

_Place = tuple[ProviderName, str, str, OperatingSystem]
"""The key of a spot price."""


class SpotCosts:
    """Spot machines by kind. Reading costs O(kinds), counting O(1)."""

    def __init__(self) -> None:
        self._machines: dict[_Kind, tuple[int, float]] = {}
        self._prices: Mapping[_Place, float] = {}

    def use(self, prices: Mapping[ProviderName, Iterable[Price]]) -> None:
        """Replace the spot prices."""
        self._prices = {
            (provider, price.instance_type, price.zone, price.os): price.dollars_per_hour
            for provider, known in prices.items()
            for price in known
        }

    def count(self, machine: Machine, sign: int) -> None:
        """Add (1) or remove (-1) a machine, with the same fields both times.

        Ignores machines that are not spot, or do not count against the limits.
        """
        runs = machine.occupies and machine.placement.provider_id is not None
        if not runs or machine.placement.capacity_type != CapacityType.SPOT:
            return
        kind = (
            machine.provider,
            machine.placement.instance_type,
            machine.placement.zone,
            machine.sku,
        )
        number, dollars = self._machines.get(kind, (0, 0.0))
        if number + sign:
            self._machines[kind] = (
                number + sign,
                dollars + sign * machine.placement.dollars_per_hour,
            )
        else:
            self._machines.pop(kind, None)

    def price_of(self, machine: Machine, catalogue: Catalogue) -> float:
        """Return what a machine costs, in dollars an hour: a spot machine its spot price, if that is known."""
        if machine.placement.capacity_type != CapacityType.SPOT:
            return machine.placement.dollars_per_hour
        place = machine.placement
        key = (machine.provider, place.instance_type, place.zone, _os(machine.sku, catalogue))
        return self._prices.get(key, place.dollars_per_hour)

    def below_limits(self, catalogue: Catalogue) -> float:
        """Return the dollars an hour that spot machines cost less than they count in the limits.

        A machine with unknown spot price costs what it counts.
        """
        less = 0.0
        for (provider, name, zone, sku), (number, dollars) in self._machines.items():
            price = self._prices.get((provider, name, zone, _os(sku, catalogue)))
            if price is not None:
                less += dollars - number * price
        return less


def _os(sku: SkuName, catalogue: Catalogue) -> OperatingSystem:
    """Return the operating system of a SKU, Linux if it is not configured any more."""
    known = catalogue.skus.get(sku)
    return known.os if known is not None else OperatingSystem.LINUX
