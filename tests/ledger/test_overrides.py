"""Errors of single overrides put only their offering on hold, unless every override failed."""

import pytest

from autoscaler.model import events as e
from autoscaler.model.catalogue import CapacityType
from autoscaler.model.cooldowns import (
    active_cooldown,
    launch_option_key,
    offering_key,
    sku_offering_key,
)
from autoscaler.model.identifiers import SkuName
from autoscaler.model.machines.failures import FailureClass, FailureScope
from autoscaler.planner.placement import Headroom
from autoscaler.planner.search import Search
from tests.ledger.builders import GPU, World, failure
from tests.planner.fleets import catalogue, offering, sku

ZONES = tuple(offering("g5.xlarge", zone) for zone in ("a", "b", "c"))
A, B, C = (one.key for one in ZONES)
OPTION = "option:gpu/0"
CONFIGURATION, UNSUPPORTED = FailureClass.CONFIGURATION, FailureClass.UNSUPPORTED


def world_after(*failures: e.LaunchFailure, given: int = 0) -> World:
    """Return the world after an answer to three machines in three zones: so many machines, these failures."""
    world = World(catalogue(sku(offerings=ZONES)))
    world.send(3)
    world.answer("c", *(f"i-{number}" for number in range(given)), failures=failures)
    return world


def quota_usage(world: World) -> dict[str, float]:
    """Return the seconds of each hold from now."""
    known = world.state.cooldowns
    return {
        key: one.until - world.now
        for key in known
        if (one := active_cooldown(known, key, world.now))
    }


@pytest.mark.case(
    "CreateFleet answers 200 with InvalidFleetConfiguration for one override: the zone does not "
    "sell the type",
    topic="EC2's API",
    source="packer#9946; compiler-explorer/infra#601",
)
@pytest.mark.parametrize("kind", [CONFIGURATION, FailureClass.UNKNOWN])
@pytest.mark.parametrize("given", [0, 2])
def test_an_error_of_one_override_puts_only_its_offering_on_hold(
    kind: FailureClass, given: int
) -> None:
    world = world_after(failure(kind, B), given=given)
    first = 60.0 if kind is CONFIGURATION else 30.0
    assert quota_usage(world) == {sku_offering_key(GPU, B): first}


@pytest.mark.case(
    "CreateFleet answers 200 with InvalidFleetConfiguration for one override: the zone does not "
    "sell the type",
    topic="EC2's API",
    source="packer#9946; compiler-explorer/infra#601",
)
def test_an_unsupported_offering_is_on_hold_for_hours() -> None:
    world = world_after(failure(UNSUPPORTED, B), failure(FailureClass.CAPACITY, C))
    assert quota_usage(world) == {offering_key(B): 6 * 3600.0, offering_key(C): 180.0}
    world.now += 6 * 3600.0
    world.send(1, "again")
    world.answer("again", failures=[failure(UNSUPPORTED, B)])
    assert quota_usage(world) == {offering_key(B): 12 * 3600.0}


@pytest.mark.case(
    "EC2 refuses every override of a call as misconfigured, or some of them beside machines",
    topic="EC2's API",
    source="EC2: CreateFleetError",
)
def test_a_launch_option_is_on_hold_if_every_override_failed() -> None:
    world = world_after(*(failure(CONFIGURATION, key, message=key) for key in (A, B, C)))
    assert quota_usage(world) == {launch_option_key("gpu", 0): 60.0}  # type: ignore[arg-type]
    assert world.state.cooldowns[OPTION].failures == 1


def test_the_launch_option_is_on_hold_if_no_zone_sells_it() -> None:
    world = world_after(*(failure(UNSUPPORTED, key) for key in (A, B, C)))
    every = {offering_key(key): 6 * 3600.0 for key in (A, B, C)}
    assert quota_usage(world) == every | {OPTION: 60.0}


def test_one_override_without_capacity_keeps_the_launch_option_available() -> None:
    world = world_after(
        failure(CONFIGURATION, A), failure(UNSUPPORTED, B), failure(FailureClass.CAPACITY, C)
    )
    assert quota_usage(world) == {
        sku_offering_key(GPU, A): 60.0,
        offering_key(B): 6 * 3600.0,
        offering_key(C): 180.0,
    }


@pytest.mark.case(
    "EC2 refuses every override of a call as misconfigured, or some of them beside machines",
    topic="EC2's API",
    source="EC2: CreateFleetError",
)
@pytest.mark.parametrize("named", [None, "east/m7i.large/z/on-demand"])
def test_beside_launched_machines_an_error_of_no_offering_of_the_request_puts_nothing_on_hold(
    named: str | None,
) -> None:
    assert quota_usage(world_after(failure(CONFIGURATION, named), given=1)) == {}
    assert quota_usage(world_after(failure(CONFIGURATION, named))) == {OPTION: 60.0}


def test_beside_launched_machines_an_error_of_wide_scope_puts_its_offering_on_hold() -> None:
    no_role = e.LaunchFailure(CONFIGURATION, "Code", "words", B, FailureScope.CAPACITY_TYPE)
    assert quota_usage(world_after(no_role, given=1)) == {sku_offering_key(GPU, B): 60.0}
    reached = f"capacity_type:east/{CapacityType.ON_DEMAND}"
    assert quota_usage(world_after(no_role)) == {reached: 60.0}


def test_beside_launched_machines_failed_overrides_do_not_put_the_launch_option_on_hold() -> None:
    world = world_after(*(failure(CONFIGURATION, key) for key in (A, B, C)), given=1)
    assert quota_usage(world) == {sku_offering_key(GPU, key): 60.0 for key in (A, B, C)}


def test_the_slots_show_a_concrete_failure_rather_than_missing_capacity() -> None:
    world = world_after(failure(FailureClass.CAPACITY, A), failure(UNSUPPORTED, B, "Unsupported"))
    assert {m.failure for m in world.state.machines.values()} == {UNSUPPORTED}


def test_an_error_of_a_skus_image_leaves_the_offering_to_other_skus() -> None:
    other = SkuName("other")
    world = World(catalogue(sku(offerings=ZONES), sku("other", offerings=ZONES)))
    world.send(3)
    world.answer("c", failures=[failure(CONFIGURATION, B), failure(FailureClass.CAPACITY, C)])
    asked = {}
    for name in (GPU, other):
        found = Search(world.fleet(), Headroom(world.fleet()), world.catalogue.skus[name]).place()
        asked[name] = [] if found is None else [one.key for one in found.offerings]
    assert asked == {GPU: [A], other: [A, B]}
