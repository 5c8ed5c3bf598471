"""Slots without a machine count against limits at the most expensive possible offering."""

from tests.ledger.builders import World
from tests.planner.fleets import catalogue, offering, sku


def test_the_most_expensive_offering_counts_whatever_its_position() -> None:
    large = offering("g5.2xlarge", dollars=2.0, units=8)
    world = World(catalogue(sku("gpu", offerings=(large, offering()))))
    (slot,) = world.record(1)
    assert (
        world.machine(slot).placement.dollars_per_hour,
        world.machine(slot).placement.quota_usage,
    ) == (
        2.0,
        (("east/G", 8),),
    )


def test_an_offering_without_quota_units_uses_no_quota() -> None:
    world = World(catalogue(sku("gpu", offerings=(offering(units=0),))))
    (slot,) = world.record(1)
    assert world.machine(slot).placement.quota_usage == (("east/G", 0),)
    assert world.fleet().usage.by_quota == {"east/G": 0}
