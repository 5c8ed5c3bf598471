"""Numbers from a provider's account that the store keeps: prices, quotas, and what machines of others use."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from autoscaler.model.catalogue import CapacityType, OperatingSystem
from autoscaler.model.identifiers import Instant, SkuName

ForeignUsage = Mapping[SkuName, tuple[int, float]]
"""By SKU: the number of machines of other installations, and what all of them cost, in dollars an hour."""


class ReadingKind(StrEnum):
    """What was read. The store keeps the readings of one provider and kind together."""

    ON_DEMAND_PRICE = "on_demand_price"
    SPOT_PRICE = "spot_price"
    QUOTA = "quota"
    FOREIGN_USAGE = "foreign_usage"


@dataclass(frozen=True, slots=True, order=True)
class Reading:
    """`name` is unique within the kind. `read_at` is when the provider gave it, in Unix seconds."""

    name: str
    value: float
    read_at: Instant


class QuotaSource(StrEnum):
    """Where a quota comes from: the operator, the provider or the store; `unknown` if none is known."""

    CONFIGURED = "configured"
    API = "api"
    CACHE = "cache"
    UNKNOWN = "unknown"


READ_AS = {
    CapacityType.ON_DEMAND: ReadingKind.ON_DEMAND_PRICE,
    CapacityType.SPOT: ReadingKind.SPOT_PRICE,
}
"""The kind of reading under which the store keeps the prices of a capacity type."""


class PriceSource(StrEnum):
    """Where a price comes from: the operator, the provider, the store, or the built-in table."""

    CONFIGURED = "configured"
    API = "api"
    CACHE = "cache"
    BUILT_IN = "built_in"


@dataclass(frozen=True, slots=True, order=True)
class Price:
    """One price in US dollars an hour, including the operating system's licence.

    `zone` is empty if the whole region has one price, as for on-demand. `read_at` is when the
    provider gave it, in Unix seconds.
    """

    capacity_type: CapacityType
    instance_type: str
    os: OperatingSystem
    zone: str
    dollars_per_hour: float
    read_at: Instant

    def reading(self) -> Reading:
        """Return the reading that the store keeps for this price."""
        name = f"{self.instance_type}/{self.os.value}/{self.zone}"
        return Reading(name, self.dollars_per_hour, self.read_at)


def price_of(capacity_type: CapacityType, reading: Reading) -> Price | None:
    """Return the price of a stored reading; None if the reading is not a valid price."""
    instance_type, _, rest = reading.name.partition("/")
    os, _, zone = rest.partition("/")
    if os not in set(OperatingSystem) or reading.value <= 0:
        return None
    dollars, system = reading.value, OperatingSystem(os)
    return Price(capacity_type, instance_type, system, zone, dollars, reading.read_at)
