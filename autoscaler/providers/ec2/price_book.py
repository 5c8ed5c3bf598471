"""The prices of one region as they are used: the operator's, AWS's, and the built-in table's.

The operator's come first, then what AWS listed last (now or before a restart), then the table.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from autoscaler.model.catalogue import CapacityType, OperatingSystem
from autoscaler.model.identifiers import Instant, Seconds
from autoscaler.model.prices import Price, PriceSource
from autoscaler.providers.ec2.instance_types import PRICES_DATED, PRICES_REGION, Prices
from autoscaler.providers.ec2.price_reading import Wanted

SPOT_KEPT_FOR: Seconds = 24 * 3600.0
"""A spot price that was read longer ago says nothing of this hour's."""

_TABLE_DATED: Instant = datetime.fromisoformat(PRICES_DATED).replace(tzinfo=UTC).timestamp()


class PriceBook:
    """`wanted` are the instance types of the configuration by the capacity type they are bought as."""

    def __init__(
        self, configured: Prices, wanted: Mapping[CapacityType, Collection[Wanted]]
    ) -> None:
        self._configured = configured
        self._wanted = {kind: frozenset(wanted.get(kind, ())) for kind in CapacityType}
        self._on_demand: dict[tuple[str, OperatingSystem], tuple[Price, PriceSource]] = {}
        self._spot: dict[tuple[str, OperatingSystem, str], tuple[Price, PriceSource]] = {}
        self.prices = configured
        """On-demand prices as offerings are priced by."""

    def wanted(self, capacity_type: CapacityType) -> frozenset[Wanted]:
        """The instance types whose prices of this kind matter.

        The operator's prices need no on-demand price of AWS's beside them.
        """
        every = self._wanted[capacity_type]
        if capacity_type is CapacityType.SPOT:
            return every
        return frozenset(one for one in every if one[0] not in self._configured.overrides)

    def use(self, prices: Sequence[Price], source: PriceSource) -> bool:
        """Use these for what they name, and keep the rest; return True if a price changed.

        The table of a newer version comes before what AWS said earlier and the store kept.
        """
        before = self.prices.listed, self.spot_dollars()
        for price in prices:
            if price.capacity_type is CapacityType.SPOT:
                self._spot[price.instance_type, price.os, price.zone] = price, source
            elif not (source is PriceSource.CACHE and self._outdated(price)):
                self._on_demand[price.instance_type, price.os] = price, source
        listed = {key: price.dollars_per_hour for key, (price, _) in self._on_demand.items()}
        self.prices = replace(self._configured, listed=listed)
        return before != (self.prices.listed, self.spot_dollars())

    def sources(self, capacity_type: CapacityType, now: Instant) -> Mapping[PriceSource, int]:
        """How many of the wanted on-demand prices, or of the spot prices in use, come from where."""
        found: Counter[PriceSource] = Counter(dict.fromkeys(PriceSource, 0))
        if capacity_type is CapacityType.SPOT:
            fresh = set(self.known(capacity_type, now))
            found.update(source for price, source in self._spot.values() if price in fresh)
            return found
        for name, os in self._wanted[CapacityType.ON_DEMAND]:
            if name in self._configured.overrides:
                found[PriceSource.CONFIGURED] += 1
            else:
                known = self._on_demand.get((name, os))
                found[known[1] if known is not None else PriceSource.BUILT_IN] += 1
        return found

    def known(self, capacity_type: CapacityType, now: Instant) -> tuple[Price, ...]:
        """The wanted prices that AWS listed; of spot, those that are not too old for this hour."""
        on_demand = capacity_type is CapacityType.ON_DEMAND
        listed = self._on_demand.values() if on_demand else self._spot.values()
        wanted = self.wanted(capacity_type)
        return tuple(
            sorted(
                price
                for price, _ in listed
                if (price.instance_type, price.os) in wanted
                and (on_demand or now - price.read_at <= SPOT_KEPT_FOR)
            )
        )

    def spot_dollars(self) -> Mapping[tuple[str, OperatingSystem, str], float]:
        """Every spot price known, by instance type, system and zone."""
        return {key: price.dollars_per_hour for key, (price, _) in self._spot.items()}

    def _outdated(self, price: Price) -> bool:
        return self._configured.region == PRICES_REGION and price.read_at < _TABLE_DATED
