"""Implements `PriceReader`: reads the prices of a provider's region through its worker."""

from collections.abc import Collection, Mapping, Sequence

from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.prices import PriceAnswer
from autoscaler.model.catalogue import CapacityType
from autoscaler.model.prices_and_quotas import Price, PriceSource
from autoscaler.providers.ec2.channel import Api
from autoscaler.providers.ec2.instance_types import Prices
from autoscaler.providers.ec2.price_book import PriceBook
from autoscaler.providers.ec2.price_reading import read_on_demand, read_spot
from autoscaler.providers.ec2.price_regions import has_spot_dollars, pricing_region
from autoscaler.providers.ec2.settings import Ec2Settings


class Ec2Prices:
    """One region's prices. Sends no request before `read_prices`."""

    def __init__(self, settings: Ec2Settings, api: Api, clock: Clock) -> None:
        self._region = settings.region
        self._api = api
        self._clock = clock
        self._book = PriceBook(settings.price_list, settings.offered)

    def use(self, settings: Ec2Settings) -> None:
        """Read the prices of what these settings offer from now on. Prices that were read stay known."""
        self._book.want(settings.offered)

    def listed(self) -> Prices:
        """Return the current on-demand prices."""
        return self._book.prices

    @property
    def price_kinds(self) -> Collection[CapacityType]:
        """The capacity types that are offered, and whose prices are in dollars (see `PriceReader`)."""
        readable = {
            CapacityType.ON_DEMAND: pricing_region(self._region) is not None,
            CapacityType.SPOT: has_spot_dollars(self._region),
        }
        return [kind for kind, can in readable.items() if can and self._book.wanted(kind)]

    async def read_prices(self, capacity_type: CapacityType) -> PriceAnswer:
        """Read AWS's current prices (see `PriceReader`)."""
        wanted, now = self._book.wanted(capacity_type), self._clock.now()
        if capacity_type is CapacityType.SPOT:
            return await read_spot(self._api, wanted, now)
        return await read_on_demand(self._api, self._region, wanted, now)

    def use_prices(self, prices: Sequence[Price], source: PriceSource) -> bool:
        """See `PriceReader`."""
        return self._book.use(prices, source)

    def price_sources(self, capacity_type: CapacityType) -> Mapping[PriceSource, int]:
        """See `PriceReader`."""
        return self._book.sources(capacity_type, self._clock.now())

    def known_prices(self, capacity_type: CapacityType) -> tuple[Price, ...]:
        """See `PriceReader`."""
        return self._book.known(capacity_type, self._clock.now())
