"""A number from a provider that the store keeps: a price or a quota."""

from dataclasses import dataclass
from enum import StrEnum

from autoscaler.model.identifiers import Instant


class ReadingKind(StrEnum):
    """What was read. The store keeps the readings of one provider and kind together."""

    ON_DEMAND_PRICE = "on_demand_price"
    SPOT_PRICE = "spot_price"
    QUOTA = "quota"


@dataclass(frozen=True, slots=True, order=True)
class Reading:
    """`name` is unique within the kind. `read_at` is when the provider gave it, in Unix seconds."""

    name: str
    value: float
    read_at: Instant
