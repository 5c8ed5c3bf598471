"""The current prices of one region: the operator's, then AWS's, then the built-in table's.

AWS's prices are the last ones that were read, also before a restart.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from autoscaler.model.catalogue import CapacityType, OperatingSystem
from autoscaler.model.identifiers import Instant, Seconds
from autoscaler.model.prices_and_quotas import READ_AS, Price, PriceSource
from autoscaler.providers.ec2.instance_types import PRICES_DATED, PRICES_REGION, Prices
from autoscaler.providers.ec2.price_reading import Wanted

SPOT_KEPT_FOR: Seconds = 24 * 3600.0
"""A spot price that was read earlier is not used."""

_TABLE_DATED: Instant = datetime.fromisoformat(PRICES_DATED).replace(tzinfo=UTC).timestamp()


class PriceBook:
    """The prices. `wanted` are the configured instance types and systems by capacity type."""

    def __init__(
        self, configured: Prices, wanted: Mapping[CapacityType, Collection[Wanted]]
    ) -> None:
        self._configured = configured
        self.want(wanted)
        self._on_demand: dict[tuple[str, OperatingSystem], tuple[Price, PriceSource]] = {}
        self._spot: dict[tuple[str, OperatingSystem, str], tuple[Price, PriceSource]] = {}
        self.prices = configured
        """The on-demand prices for offerings."""

    def want(self, wanted: Mapping[CapacityType, Collection[Wanted]]) -> None:
        """Want the prices of these instance types and systems from now on."""
        self._wanted = {kind: frozenset(wanted.get(kind, ())) for kind in READ_AS}

    def wanted(self, capacity_type: CapacityType) -> frozenset[Wanted]:
        """Return the instance types and systems whose prices of this kind must be read.

        An on-demand price from the operator replaces AWS's, so AWS's is not read.
        """
        every = self._wanted[capacity_type]
        if capacity_type is CapacityType.SPOT:
            return every
        return frozenset(one for one in every if one[0] not in self._configured.overrides)

    def use(self, prices: Sequence[Price], source: PriceSource) -> bool:
        """Use these prices, and keep the others. Return True if a price changed.

        Ignores on-demand prices from the store that are older than the built-in table.
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
        """Return the number of prices by source: of the wanted on-demand, or the used spot prices."""
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
        """Return the wanted prices that AWS listed; of spot prices, those of the last 24 hours."""
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
        """Return all known spot prices by instance type, system and zone."""
        return {key: price.dollars_per_hour for key, (price, _) in self._spot.items()}

    def _outdated(self, price: Price) -> bool:
        return self._configured.region == PRICES_REGION and price.read_at < _TABLE_DATED
