"""Spot machines cost the spot price of their zone; limits count them at the on-demand price."""

from dataclasses import replace

import pytest

from autoscaler.controller.reporting.fleet_counts import fleet_counts
from autoscaler.model.catalogue import CapacityType, OperatingSystem
from autoscaler.model.identifiers import MachineId
from autoscaler.model.machines.machine import Machine
from autoscaler.model.prices_and_quotas import Price
from tests.ledger.builders import World
from tests.planner.fleets import EAST

PRICE = Price(CapacityType.SPOT, "g5.xlarge", OperatingSystem.LINUX, "a", 0.4, 1000.0)


def costs(world: World) -> float:
    return fleet_counts(world.state, world.now).dollars_per_hour


def spot_machines(world: World, count: int = 2, name: str = "c") -> None:
    """Machines whose call was answered with spot ones in zone a."""
    for machine in world.launch(count, name):
        found = world.machine(machine)
        with world.state.changing(found):
            found.placement.capacity_type = CapacityType.SPOT
            found.placement.instance_type, found.placement.zone = "g5.xlarge", "a"


@pytest.mark.case(
    "spot prices differ by zone and hour",
    topic="EC2's API",
    source="EC2: spot price history",
)
def test_a_spot_machine_costs_the_spot_price_and_counts_in_the_limit_at_on_demand() -> None:
    world = World()
    spot_machines(world)
    counted = world.state.dollars_used
    assert costs(world) == pytest.approx(counted), "no price is known"
    world.ledger.use_spot_prices({EAST: [PRICE, replace(PRICE, zone="b", dollars_per_hour=9.0)]})
    assert costs(world) == pytest.approx(0.8)
    assert world.state.dollars_used == counted
    assert world.fleet().usage.dollars_per_hour == counted


def test_only_the_newest_spot_price_of_the_same_type_zone_and_os_applies() -> None:
    world = World()
    spot_machines(world)
    counted = world.state.dollars_used
    for price, dollars in ((0.4, 0.8), (0.5, 1.0)):
        world.ledger.use_spot_prices({EAST: [replace(PRICE, dollars_per_hour=price)]})
        assert costs(world) == pytest.approx(dollars)
    for other in (
        {"zone": "b"},
        {"instance_type": "g6.xlarge"},
        {"os": OperatingSystem.WINDOWS},
    ):
        world.ledger.use_spot_prices({EAST: [replace(PRICE, **other)]})
        assert costs(world) == pytest.approx(counted)
    world.ledger.use_spot_prices({})
    assert costs(world) == pytest.approx(counted)


def test_on_demand_and_terminated_machines_have_no_spot_price() -> None:
    world = World()
    world.launch(1, "plain")
    plain = world.state.dollars_used
    world.ledger.use_spot_prices({EAST: [PRICE]})
    assert costs(world) == pytest.approx(plain)
    spot_machines(world, 2, "c")
    assert costs(world) == pytest.approx(plain + 0.8)
    world.lists(world.listed("plain0"), world.listed("c0", terminated=True), world.listed("c1"))
    assert MachineId("c0") in world.state.machines
    assert costs(world) == pytest.approx(plain + 0.4)
    world.lists(*(world.listed(one, terminated=True) for one in ("plain0", "c1")))
    assert costs(world) == 0.0


def test_a_spot_machine_of_a_restored_store_costs_the_spot_price_too() -> None:
    """The record of a machine has the word alone."""
    world = World()
    spot_machines(world)
    for machine in world.state.machines.values():
        with world.state.changing(machine):
            machine.placement.capacity_type = str(CapacityType.SPOT.value)
    world.ledger.use_spot_prices({EAST: [PRICE]})
    assert costs(world) == pytest.approx(0.8)


def test_the_price_of_a_machine_is_that_of_its_zone_if_it_is_known() -> None:
    world = World()
    spot_machines(world, 1)
    (on_demand,) = world.launch(1, "d")
    spot = world.machine("c0")

    def price(machine: Machine) -> float:
        return world.state.spot_costs.price_of(machine, world.state.catalogue)

    assert price(spot) == spot.placement.dollars_per_hour
    world.ledger.use_spot_prices({EAST: [PRICE]})
    assert price(spot) == 0.4
    assert price(world.machine(on_demand)) == world.machine(on_demand).placement.dollars_per_hour
