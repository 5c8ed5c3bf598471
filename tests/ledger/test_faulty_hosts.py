"""A machine's hardware fails its health checks: for a while, its SKU is launched elsewhere."""

import pytest

from autoscaler.model import events as e
from autoscaler.model.catalogue import CapacityType
from autoscaler.model.plan import Launch
from tests.ledger.builders import World
from tests.planner.fleets import catalogue, offering, sku

HERE = (offering(zone="a"), offering(zone="a", capacity_type=CapacityType.SPOT))
ELSEWHERE = offering(zone="b")
BROKEN = "gpu_driver: 570.1; gpu_errors: GPU 0 has 3 uncorrectable errors"


def failed(world: World, detail: str, name: str = "c") -> None:
    """A machine in zone a fails its health checks, and a job waits."""
    (machine,) = world.launch(1, name)
    assert world.machine(machine).placement.zone == "a"
    world.boot(machine)
    world.do(e.HealthChecksReported, machine, False, detail)
    world.queue(1)


def launched_zones(world: World) -> set[str]:
    return {key.split("/")[2] for launch in world.intents(Launch) for key in launch.offerings}


@pytest.mark.case(
    "a GPU of a machine is broken: EC2 may give the same host to the next launch of its type in its zone, so "
    "the SKU is launched elsewhere for a while",
    topic="EC2's machines",
    source="NVIDIA: GPU Memory Error Management",
)
def test_after_a_hardware_failure_the_type_in_the_zone_is_avoided_for_ten_minutes() -> None:
    world = World(catalogue(sku(offerings=(*HERE, ELSEWHERE)), sku("other", offerings=HERE)))
    failed(world, BROKEN)
    assert launched_zones(world) == {"b"}
    holds = {key: one for key, one in world.state.cooldowns.items() if one.until > world.now}
    assert set(holds) == {f"offering:{one.key}/gpu" for one in HERE}
    assert {one.until - world.now for one in holds.values()} == {600.0}
    assert all("gpu_errors" in one.reason for one in holds.values())
    world.queue(2, labels=("other",))
    assert launched_zones(world) == {"a", "b"}, "another SKU may need the machine's type"
    world.after(600.0)
    assert launched_zones(world) == {"a", "b"}


@pytest.mark.parametrize(
    "detail", ["disk: 3 GiB free; github: timed out", "gpu_query: no answer", "no gpu_errors"]
)
def test_a_failure_that_the_host_does_not_cause_puts_no_offering_on_hold(detail: str) -> None:
    world = World(catalogue(sku(offerings=(*HERE, ELSEWHERE))))
    failed(world, detail)
    assert launched_zones(world) == {"a", "b"}


def test_one_faulty_host_does_not_stop_a_sku_without_another_offering() -> None:
    world = World(catalogue(sku(offerings=HERE)))
    failed(world, BROKEN)
    assert launched_zones(world) == {"a"}


def test_the_last_available_offering_is_not_put_on_hold() -> None:
    world = World(catalogue(sku(offerings=(*HERE, ELSEWHERE))))
    failed(world, BROKEN)
    assert launched_zones(world) == {"b"}
    before = dict(world.state.cooldowns)
    (machine,) = world.launch(1, "d")
    world.machine(machine).placement.zone = "b"
    world.boot(machine)
    world.do(e.HealthChecksReported, machine, False, BROKEN)
    held = {key for key in world.state.cooldowns if key.startswith("offering:")}
    assert held == {key for key in before if key.startswith("offering:")}
