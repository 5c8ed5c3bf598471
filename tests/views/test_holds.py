"""How many offerings are on hold, by the reason that the planner meets first."""

from dataclasses import replace

import pytest

from autoscaler.model.catalogue import CapacityType
from autoscaler.model.cooldowns import (
    Cooldown,
    capacity_type_key,
    launch_option_key,
    offering_key,
    quota_key,
    sku_offering_key,
    throttle_key,
    zone_key,
)
from autoscaler.model.machines.failures import FailureClass
from autoscaler.views.offerings import offerings_on_hold
from tests.ledger.builders import GPU, World
from tests.planner.fleets import EAST, catalogue, offering, sku

OD, SPOT = CapacityType.ON_DEMAND, CapacityType.SPOT
A, B = offering(zone="a"), offering(zone="b")
CHEAP = offering(zone="a", capacity_type=SPOT, quota="G-spot")


def world_with(*holds: tuple[str, FailureClass], seconds: float = 60.0) -> World:
    world = World(catalogue(sku(offerings=(CHEAP, A, B))))
    for key, failure in holds:
        world.state.cooldowns[key] = Cooldown(key, world.now + seconds, 1, "words", failure)
    return world


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (offering_key(A.key), {OD: 1}),
        (sku_offering_key(GPU, A.key), {OD: 1}),
        (zone_key(EAST, "a"), {OD: 1, SPOT: 1}),
        (capacity_type_key(EAST, OD), {OD: 2}),
        (quota_key(CHEAP.quota_key), {SPOT: 1}),
        (launch_option_key(GPU, 0), {OD: 2, SPOT: 1}),
        (throttle_key(EAST), {OD: 2, SPOT: 1}),
        (launch_option_key(GPU, 1), {}),
    ],
)
def test_a_hold_counts_the_offerings_that_it_concerns(
    key: str, expected: dict[CapacityType, int]
) -> None:
    counts = offerings_on_hold(world_with((key, FailureClass.QUOTA)).fleet())
    assert counts == {(EAST, kind, FailureClass.QUOTA): number for kind, number in expected.items()}


def test_an_offering_under_two_holds_counts_once_by_the_wider_one() -> None:
    world = world_with(
        (offering_key(A.key), FailureClass.CAPACITY), (zone_key(EAST, "a"), FailureClass.QUOTA)
    )
    assert offerings_on_hold(world.fleet()) == {
        (EAST, OD, FailureClass.QUOTA): 1,
        (EAST, SPOT, FailureClass.QUOTA): 1,
    }


def test_a_hold_that_is_over_counts_nothing() -> None:
    world = world_with((offering_key(A.key), FailureClass.CAPACITY))
    assert offerings_on_hold(replace(world.fleet(), now=world.now + 60.0)) == {}
