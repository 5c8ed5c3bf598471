"""A number from a provider that the store keeps: a price, a quota, or what machines of others use."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

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
