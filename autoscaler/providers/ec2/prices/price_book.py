"""Implements `PriceReader`: reads the prices of a provider's region through its worker."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from autoscaler.controller.ports.capabilities import PriceAnswer
from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.provider import provider_errors
from autoscaler.model.catalogue import CapacityType, OperatingSystem
from autoscaler.model.identifiers import Instant, Seconds
from autoscaler.model.prices_and_quotas import READ_AS, Price, PriceSource
from autoscaler.providers.ec2.instance_types import (
    PRICES_DATED,
    PRICES_REGION,
    Prices,
    has_spot_dollars,
    pricing_region,
)
from autoscaler.providers.ec2.prices.reading import Wanted, read_on_demand, read_spot
from autoscaler.providers.ec2.settings import Ec2Settings
from autoscaler.providers.ec2.worker.channel import Api

SPOT_KEPT_FOR: Seconds = 24 * 3600.0
"""A spot price that was read earlier is not used."""

_TABLE_DATED: Instant = datetime.fromisoformat(PRICES_DATED).replace(tzinfo=UTC).timestamp()


@provider_errors
class Ec2Prices:
    """The prices of one region: the operator's, then AWS's, then the built-in table's.

    AWS's prices are the last ones that were read, also before a restart. Sends no request before `read_prices`.
    """

    def __init__(self, settings: Ec2Settings, api: Api, clock: Clock) -> None:
        self._region = settings.section.region
        self._api = api
        self._clock = clock
        self._configured = self._listed = settings.price_list
        self._on_demand: dict[tuple[str, OperatingSystem], tuple[Price, PriceSource]] = {}
        self._spot: dict[tuple[str, OperatingSystem, str], tuple[Price, PriceSource]] = {}
        self.use(settings)

    def use(self, settings: Ec2Settings) -> None:
        """Read the prices of what these settings offer from now on. Prices that were read stay known."""
        self._offered = {kind: frozenset(settings.offered.get(kind, ())) for kind in READ_AS}

    def listed(self) -> Prices:
        """Return the current on-demand prices."""
        return self._listed

    @property
    def price_kinds(self) -> Collection[CapacityType]:
        """The capacity types that are offered, and whose prices are in dollars (see `PriceReader`)."""
        readable = {
            CapacityType.ON_DEMAND: pricing_region(self._region) is not None,
            CapacityType.SPOT: has_spot_dollars(self._region),
        }
        return [kind for kind, can in readable.items() if can and self._wanted(kind)]

    async def read_prices(self, capacity_type: CapacityType) -> PriceAnswer:
        """Read AWS's current prices (see `PriceReader`)."""
        wanted, now = self._wanted(capacity_type), self._clock.now()
        if capacity_type is CapacityType.SPOT:
            return await read_spot(self._api, wanted, now)
        return await read_on_demand(self._api, self._region, wanted, now)

    def use_prices(self, prices: Sequence[Price], source: PriceSource) -> bool:
        """Use these prices, and keep the others (see `PriceReader`).

        Ignores on-demand prices from the store that are older than the built-in table.
        """
        before = self._listed.listed, self._spot_dollars()
        for price in prices:
            if price.capacity_type is CapacityType.SPOT:
                self._spot[price.instance_type, price.os, price.zone] = price, source
            elif not (source is PriceSource.CACHE and self._outdated(price)):
                self._on_demand[price.instance_type, price.os] = price, source
        listed = {key: price.dollars_per_hour for key, (price, _) in self._on_demand.items()}
        self._listed = replace(self._configured, listed=listed)
        return before != (self._listed.listed, self._spot_dollars())

    def price_sources(self, capacity_type: CapacityType) -> Mapping[PriceSource, int]:
        """Return the number of prices by source: of the wanted on-demand, or the used spot prices."""
        found: Counter[PriceSource] = Counter(dict.fromkeys(PriceSource, 0))
        if capacity_type is CapacityType.SPOT:
            fresh = set(self.known_prices(capacity_type))
            found.update(source for price, source in self._spot.values() if price in fresh)
            return found
        for name, os in self._offered[CapacityType.ON_DEMAND]:
            if name in self._configured.overrides:
                found[PriceSource.CONFIGURED] += 1
            else:
                known = self._on_demand.get((name, os))
                found[known[1] if known is not None else PriceSource.BUILT_IN] += 1
        return found

    def known_prices(self, capacity_type: CapacityType) -> tuple[Price, ...]:
        """Return the wanted prices that AWS listed; of spot prices, those of the last 24 hours."""
        on_demand, now = capacity_type is CapacityType.ON_DEMAND, self._clock.now()
        listed = self._on_demand.values() if on_demand else self._spot.values()
        wanted = self._wanted(capacity_type)
        return tuple(
            sorted(
                price
                for price, _ in listed
                if (price.instance_type, price.os) in wanted
                and (on_demand or now - price.read_at <= SPOT_KEPT_FOR)
            )
        )

    def _wanted(self, capacity_type: CapacityType) -> frozenset[Wanted]:
        """Return the instance types and systems whose prices of this kind must be read.

        An on-demand price from the operator replaces AWS's, so AWS's is not read.
        """
        every = self._offered[capacity_type]
        if capacity_type is CapacityType.SPOT:
            return every
        return frozenset(one for one in every if one[0] not in self._configured.overrides)

    def _spot_dollars(self) -> Mapping[tuple[str, OperatingSystem, str], float]:
        return {key: price.dollars_per_hour for key, (price, _) in self._spot.items()}

    def _outdated(self, price: Price) -> bool:
        return self._configured.region == PRICES_REGION and price.read_at < _TABLE_DATED
