"""`explain` shows each hold on the offerings that it concerns: a case for each key and each operator's hold."""

from dataclasses import replace

import pytest

from autoscaler.model import events as e
from autoscaler.model.catalogue import CapacityType
from autoscaler.model.cooldowns import (
    Cooldown,
    boots_key,
    capacity_type_key,
    exits_key,
    launch_option_key,
    offering_key,
    quota_key,
    sku_offering_key,
    throttle_key,
    zone_key,
)
from autoscaler.model.identifiers import ProviderName, SkuName
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.operators import (
    WHOLE_FLEET,
    HoldKind,
    HoldTarget,
    provider_target,
    sku_target,
)
from autoscaler.views.jobs.explanation import explain_job, explain_labels
from autoscaler.views.offerings import OptionView
from tests.ledger.builders import ALICE, GPU, World
from tests.planner.fleets import EAST, catalogue, offering, sku

OD, SPOT = CapacityType.ON_DEMAND, CapacityType.SPOT
CHEAP = offering(zone="a", capacity_type=SPOT, quota="G-spot")
A, B = offering(zone="a"), offering(zone="b")
LAST = offering("g6.xlarge", zone="b", quota="G6")
OTHER, WEST = SkuName("other"), ProviderName("west")
ALL = {CHEAP.key, A.key, B.key, LAST.key}
FIRST = {CHEAP.key, A.key, B.key}


def world_with(*holds: Cooldown) -> World:
    """A fleet whose SKU has two launch options, with a waiting job."""
    one = sku(offerings=(CHEAP, A, B))
    both = (*one.launch_options, *sku(offerings=(LAST,)).launch_options)
    world = World(catalogue(replace(one, launch_options=both), sku("other")))
    world.queue(1)
    for hold in holds:
        world.state.cooldowns[hold.key] = hold
    return world


def hold(key: str, seconds: float = 60.0, failures: int = 1, reason: str = "words") -> Cooldown:
    return Cooldown(key, World().now + seconds, failures, reason, FailureClass.CAPACITY)


def tried(world: World) -> tuple[OptionView, ...]:
    """Return the offerings that `explain` shows for a job, which are those for its labels."""
    fleet = world.fleet()
    found = explain_job(fleet, world.plan().waiting, world.job(1)).tried
    assert found == explain_labels(fleet, "acme/widgets", ["gpu"]).tried
    assert found == explain_labels(fleet, None, ["gpu"]).tried
    assert [(one.option, one.offering) for one in found] == [
        (0, CHEAP.key),
        (0, A.key),
        (0, B.key),
        (1, LAST.key),
    ]
    return found


def held(world: World) -> set[str]:
    return {one.offering for one in tried(world) if one.on_hold}


KEYS = {
    throttle_key(EAST): ALL,
    throttle_key(WEST): set(),
    launch_option_key(GPU, 0): FIRST,
    launch_option_key(GPU, 1): {LAST.key},
    launch_option_key(OTHER, 0): set(),
    capacity_type_key(EAST, SPOT): {CHEAP.key},
    capacity_type_key(EAST, OD): {A.key, B.key, LAST.key},
    capacity_type_key(WEST, OD): set(),
    zone_key(EAST, "a"): {CHEAP.key, A.key},
    zone_key(EAST, "b"): {B.key, LAST.key},
    zone_key(WEST, "a"): set(),
    offering_key(A.key): {A.key},
    sku_offering_key(GPU, A.key): {A.key},
    sku_offering_key(OTHER, A.key): set(),
    quota_key(CHEAP.quota_key): {CHEAP.key},
    quota_key(A.quota_key): {A.key, B.key},
}


@pytest.mark.parametrize("key", KEYS)
def test_a_hold_is_shown_with_its_words_and_its_end(key: str) -> None:
    world = world_with(hold(key))
    shown = [one for one in tried(world) if one.on_hold]
    assert {one.offering for one in shown} == KEYS[key]
    for one in shown:
        assert (one.on_hold, one.until, one.failures) == ("words", world.now + 60.0, 1)
    for one in tried(world):
        if one not in shown:
            assert (one.until, one.failures) == (None, 0)


@pytest.mark.parametrize("key", KEYS)
def test_a_hold_that_is_over_is_not_shown(key: str) -> None:
    assert held(world_with(hold(key, seconds=0.0))) == set()


CIRCUITS = {
    exits_key(GPU): ALL,
    exits_key(OTHER): set(),
    boots_key(GPU): ALL,
    boots_key(OTHER): set(),
    launch_option_key(GPU, 0): FIRST,
    launch_option_key(GPU, 1): {LAST.key},
    launch_option_key(OTHER, 1): set(),
}


@pytest.mark.parametrize("key", CIRCUITS)
def test_an_open_circuit_breaker_is_shown_until_it_closes(key: str) -> None:
    world = world_with(hold(key, failures=3))
    shown = [one for one in tried(world) if one.on_hold]
    assert {one.offering for one in shown} == CIRCUITS[key]
    assert {(one.until, one.failures) for one in shown} <= {(world.now + 60.0, 3)}
    # After its hold, one probe at a time is launched.
    shown = [one for one in tried(world_with(hold(key, 0.0, failures=3))) if one.on_hold]
    assert {one.offering for one in shown} == CIRCUITS[key]
    assert {(one.until, one.failures) for one in shown} <= {(None, 3)}
    assert held(world_with(hold(key, 0.0, failures=2))) == set()


@pytest.mark.parametrize("seconds", [30.0, 90.0])
@pytest.mark.parametrize("key", [key for key, offerings in KEYS.items() if A.key in offerings])
def test_of_two_holds_the_one_that_ends_last_is_shown(key: str, seconds: float) -> None:
    # A zone is on hold in every case, and its own hold with other words.
    zone = hold(zone_key(EAST, "a"), 60.0, reason="the zone")
    world = world_with(zone, hold(key, seconds) if key != zone.key else zone)
    (shown,) = [one for one in tried(world) if one.offering == A.key]
    last = seconds > 60.0 and key != zone.key
    assert shown.on_hold == ("words" if last else "the zone")
    assert shown.until == world.now + (seconds if last else 60.0)


@pytest.mark.parametrize("kind", [HoldKind.PAUSED, HoldKind.DRAINED])
@pytest.mark.parametrize(
    ("target", "offerings"),
    [
        (WHOLE_FLEET, ALL),
        (sku_target(GPU), ALL),
        (sku_target(OTHER), set()),
        (provider_target(EAST), ALL),
        (provider_target(WEST), set()),
    ],
    ids=str,
)
def test_an_operator_s_hold_is_shown_before_the_others(
    kind: HoldKind, target: HoldTarget, offerings: set[str]
) -> None:
    world = world_with(hold(offering_key(A.key), 1e6))
    world.do(e.HeldByOperator, kind, target, ALICE)
    for one in tried(world):
        if one.offering in offerings:
            assert one.on_hold.startswith(f"{target} is {kind} by alice since ")
            assert one.until is None
        else:
            assert one.on_hold == ("words" if one.offering == A.key else "")
    world.do(e.ResumedByOperator, target, ALICE)
    assert held(world) == {A.key}
