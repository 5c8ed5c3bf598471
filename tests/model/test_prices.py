"""A price is stored as a reading; an invalid reading is no price."""

import pytest

from autoscaler.model.catalogue import CapacityType, OperatingSystem
from autoscaler.model.prices_and_quotas import Price, Reading, price_of


@pytest.mark.parametrize("zone", ["", "us-east-1a"])
@pytest.mark.parametrize("os", OperatingSystem)
@pytest.mark.parametrize("kind", CapacityType)
def test_a_stored_price_is_read_back_unchanged(
    kind: CapacityType, os: OperatingSystem, zone: str
) -> None:
    price = Price(kind, "g5.xlarge", os, zone, 0.41, 1.8e9)
    assert price_of(kind, price.reading()) == price


@pytest.mark.parametrize(
    ("name", "value"),
    [("g5.xlarge/beos/", 1.0), ("g5.xlarge", 1.0), ("", 1.0), ("g5.xlarge/linux/", 0.0)],
)
def test_an_invalid_reading_gives_no_price(name: str, value: float) -> None:
    assert price_of(CapacityType.SPOT, Reading(name, value, 1.8e9)) is None
