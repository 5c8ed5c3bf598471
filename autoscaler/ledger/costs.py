"""What the machines cost now: like what they count in the limits, but for spot.

A limit counts a spot machine at its on-demand price, so that it holds whatever spot comes to cost.
"""

from collections.abc import Iterable, Mapping

from autoscaler.model.catalogue import CapacityType, Catalogue, OperatingSystem
from autoscaler.model.identifiers import ProviderName, SkuName
from autoscaler.model.machines import Machine
from autoscaler.model.prices import Price

_Kind = tuple[ProviderName, str, str, SkuName]
"""A spot machine's provider, instance type, zone and SKU."""

_Place = tuple[ProviderName, str, str, OperatingSystem]
"""What a spot price is for."""


class SpotCosts:
    """Counts spot machines by kind. Reading costs O(kinds), counting O(1)."""

    def __init__(self) -> None:
        self._machines: dict[_Kind, tuple[int, float]] = {}
        self._prices: Mapping[_Place, float] = {}

    def use(self, prices: Mapping[ProviderName, Iterable[Price]]) -> None:
        """Use these spot prices from now on, and no others."""
        self._prices = {
            (provider, price.instance_type, price.zone, price.os): price.dollars_per_hour
            for provider, known in prices.items()
            for price in known
        }

    def count(self, machine: Machine, sign: int) -> None:
        """Count a machine in (1) or out (-1), as long as its fields are the same.

        Only one that runs as spot and counts in the limits is counted.
        """
        runs = machine.occupies and machine.provider_id is not None
        if not runs or machine.capacity_type is not CapacityType.SPOT:
            return
        kind = (machine.provider, machine.instance_type, machine.zone, machine.sku)
        number, dollars = self._machines.get(kind, (0, 0.0))
        if number + sign:
            self._machines[kind] = number + sign, dollars + sign * machine.dollars_per_hour
        else:
            self._machines.pop(kind, None)

    def below_limits(self, catalogue: Catalogue) -> float:
        """How many dollars an hour less the spot machines cost than they count in the limits.

        One whose price is not known costs what it counts.
        """
        less = 0.0
        for (provider, name, zone, sku), (number, dollars) in self._machines.items():
            known = catalogue.skus.get(sku)
            os = known.os if known is not None else OperatingSystem.LINUX
            price = self._prices.get((provider, name, zone, os))
            if price is not None:
                less += dollars - number * price
        return less
