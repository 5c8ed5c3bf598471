"""What a provider asks for a machine, and where that is known from."""

from dataclasses import dataclass
from enum import StrEnum

from autoscaler.model.catalogue import CapacityType, OperatingSystem
from autoscaler.model.identifiers import Instant
from autoscaler.model.readings import Reading, ReadingKind

READ_AS = {
    CapacityType.ON_DEMAND: ReadingKind.ON_DEMAND_PRICE,
    CapacityType.SPOT: ReadingKind.SPOT_PRICE,
}
"""As what the prices of a capacity type are kept."""


class PriceSource(StrEnum):
    """Where a price in use comes from: the operator, the provider, the store, or our own table."""

    CONFIGURED = "configured"
    API = "api"
    CACHE = "cache"
    BUILT_IN = "built_in"


@dataclass(frozen=True, slots=True, order=True)
class Price:
    """One price, US dollars an hour, the operating system's licence included.

    `zone` is empty where the whole region has one price, as on demand. `read_at` is when the
    provider gave it, in Unix seconds.
    """

    capacity_type: CapacityType
    instance_type: str
    os: OperatingSystem
    zone: str
    dollars_per_hour: float
    read_at: Instant

    def reading(self) -> Reading:
        """Return the price as it is kept, among those of its capacity type."""
        name = f"{self.instance_type}/{self.os.value}/{self.zone}"
        return Reading(name, self.dollars_per_hour, self.read_at)


def price_of(capacity_type: CapacityType, reading: Reading) -> Price | None:
    """Return the price that was kept as this reading; None if it is none."""
    instance_type, _, rest = reading.name.partition("/")
    os, _, zone = rest.partition("/")
    if os not in set(OperatingSystem) or reading.value <= 0:
        return None
    dollars, system = reading.value, OperatingSystem(os)
    return Price(capacity_type, instance_type, system, zone, dollars, reading.read_at)
