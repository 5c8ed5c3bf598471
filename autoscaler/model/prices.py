"""What a provider asks for a machine, and where that is known from."""

from dataclasses import dataclass
from enum import StrEnum

from autoscaler.model.catalogue import CapacityType, OperatingSystem
from autoscaler.model.identifiers import Instant


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
