"""Where a SKU is launched: its launch options in order, without those on hold, within quotas and dollars."""

import dataclasses

import pytest

from autoscaler.model.catalogue import CapacityType, Catalogue, LaunchOption, Limits, Offering, Sku
from autoscaler.model.cooldowns import (
    Cooldown,
    launch_option_key,
    offering_key,
    quota_key,
    throttle_key,
)
from autoscaler.model.identifiers import ProviderName
from autoscaler.model.plan import Launch
from tests.ledger.builders import GPU, GPU_CLASS, World
from tests.planner.fleets import EAST, catalogue, offering, sku

WEST = ProviderName("west")
SPOT = offering("g5", "a", CapacityType.SPOT, 0.4, "G-spot")
SPOT_B = offering("g6", "b", CapacityType.SPOT, 0.5, "G-spot", 8)
OD = offering("g5", "a", CapacityType.ON_DEMAND, 1.0)
OD_B = offering("g6", "b", CapacityType.ON_DEMAND, 1.6, units=8)
POD = Offering(WEST, "pod", "", CapacityType.ON_DEMAND, 0.0, "pods", 1)
TYPES = (CapacityType.SPOT, CapacityType.ON_DEMAND)
TWO_OPTIONS = dataclasses.replace(
    sku(),
    launch_options=(
        LaunchOption(EAST, TYPES, (SPOT, OD, SPOT_B, OD_B)),
        LaunchOption(WEST, (CapacityType.ON_DEMAND,), (POD,)),
    ),
)


def world_of(
    *skus: Sku, limits: Limits | None = None, held: tuple[str, ...] = (), jobs: int = 1
) -> World:
    world = World(catalogue(*(skus or (TWO_OPTIONS,)), limits=limits))
    for key in held:
        world.state.cooldowns[key] = Cooldown(key, world.now + 50.0, 1, "Code: words")
    world.queue(*range(1, jobs + 1))
    return world


def launches(world: World) -> list[tuple[int, str, tuple[str, ...], int]]:
    return [
        (a.option, a.capacity_type.value, tuple(k.split("/", 1)[1] for k in a.offerings), a.count)
        for a in world.intents(Launch)
    ]


def reason(world: World) -> str:
    (waiting,) = world.plan().waiting[GPU_CLASS]
    return waiting.message


FIRST = (0, "spot", ("g5/a/spot", "g6/b/spot"), 1)
SECOND = (0, "on-demand", ("g5/a/on-demand", "g6/b/on-demand"), 1)
THIRD = (1, "on-demand", ("pod//on-demand",), 1)


@pytest.mark.case(
    "no capacity of a type anywhere: the next type, then the next launch option",
    topic="EC2's API",
    source="Karpenter pkg/errors",
)
@pytest.mark.parametrize(
    ("held", "expected"),
    [
        ((), FIRST),
        ((offering_key(SPOT.key),), (0, "spot", ("g6/b/spot",), 1)),
        ((offering_key(SPOT.key), offering_key(SPOT_B.key)), SECOND),
        ((quota_key("east/G-spot"),), SECOND),
        ((quota_key("east/G-spot"), quota_key("east/G")), THIRD),
        ((launch_option_key(GPU, 0),), THIRD),
        ((launch_option_key(GPU, 1),), FIRST),
        ((throttle_key(WEST),), FIRST),
    ],
)
def test_capacity_types_and_options_are_tried_in_order_without_those_on_hold(
    held: tuple[str, ...], expected: tuple[int, str, tuple[str, ...], int]
) -> None:
    world = world_of(held=held)
    assert launches(world) == [expected]
    assert world.intents(Launch)[0].provider == (WEST if expected is THIRD else EAST)
    world.now += 50
    assert launches(world) == [FIRST]


def test_a_throttled_provider_is_waited_for_instead_of_a_more_expensive_option() -> None:
    world = world_of(held=(throttle_key(EAST),))
    assert launches(world) == []
    assert reason(world) == "east throttles launches (Code: words)"


def test_a_throttled_option_further_down_does_not_block_what_is_above_it() -> None:
    world = world_of(held=(launch_option_key(GPU, 0), throttle_key(WEST)))
    assert launches(world) == []
    assert reason(world) == ("east is on hold: Code: words; west throttles launches (Code: words)")


@pytest.mark.case(
    "capacity is exhausted, and no message says so",
    topic="Complaints about other fleets",
    source="runs-on#73",
)
def test_the_reason_names_each_launch_option_on_hold_once() -> None:
    world = world_of(
        held=(quota_key("east/G-spot"), offering_key(OD.key), launch_option_key(GPU, 1))
    )
    world.state.cooldowns[offering_key(OD_B.key)] = Cooldown(
        offering_key(OD_B.key), world.now + 50.0, 1, "none"
    )
    assert reason(world) == (
        f"{SPOT.key} is on hold: Code: words; {SPOT_B.key} is on hold: Code: words; "
        f"{OD.key} is on hold: Code: words; {OD_B.key} is on hold: none; "
        "west is on hold: Code: words"
    )


def test_a_job_of_a_sku_without_launch_options_has_a_waiting_reason() -> None:
    world = world_of(dataclasses.replace(sku(), launch_options=()))
    assert reason(world) == "no provider of the SKU's launch options (`on`) has an offering now"


def test_offerings_keep_their_order() -> None:
    backwards = sku(offerings=(OD_B, OD))
    assert launches(world_of(backwards)) == [
        (0, "on-demand", ("g6/b/on-demand", "g5/a/on-demand"), 1)
    ]


ON_DEMAND = sku(offerings=(OD, OD_B))


@pytest.mark.parametrize(
    ("quota", "jobs", "expected"),
    [
        (16, 2, [(("g5/a/on-demand", "g6/b/on-demand"), 2)]),
        (15, 2, [(("g5/a/on-demand", "g6/b/on-demand"), 1), (("g5/a/on-demand",), 1)]),
        (7, 2, [(("g5/a/on-demand",), 1)]),
        (3, 1, []),
        (0, 1, []),
    ],
)
def test_a_quota_counts_every_machine_at_the_most_it_may_take(
    quota: int, jobs: int, expected: list[tuple[tuple[str, ...], int]]
) -> None:
    world = world_of(ON_DEMAND, limits=Limits(quotas={"east/G": quota}), jobs=jobs)
    assert [(keys, count) for _, _, keys, count in launches(world)] == expected


@pytest.mark.case(
    "new accounts have a quota of 0 for GPUs: jobs show it as their reason to wait",
    topic="EC2's API",
    source="EC2: on-demand quotas",
)
def test_a_quota_that_is_too_small_is_the_waiting_reason() -> None:
    world = world_of(ON_DEMAND, limits=Limits(quotas={"east/G": 3}))
    assert reason(world) == "the quota east/G leaves this fleet 3, less than one machine needs"


def test_quotas_of_other_providers_and_families_do_not_limit_launches() -> None:
    world = world_of(ON_DEMAND, limits=Limits(quotas={"west/G": 0, "east/P": 0}))
    assert len(launches(world)) == 1


@pytest.mark.parametrize(
    ("dollars", "jobs", "expected"),
    [
        (3.2, 2, [(("g5/a/on-demand", "g6/b/on-demand"), 2)]),
        (3.1, 2, [(("g5/a/on-demand", "g6/b/on-demand"), 1), (("g5/a/on-demand",), 1)]),
        (1.5, 2, [(("g5/a/on-demand",), 1)]),
        (1.0, 1, [(("g5/a/on-demand",), 1)]),
        (0.99, 1, []),
    ],
)
def test_near_the_dollar_limit_the_cheaper_offerings_are_requested(
    dollars: float, jobs: int, expected: list[tuple[tuple[str, ...], int]]
) -> None:
    world = world_of(ON_DEMAND, limits=Limits(dollars_per_hour=dollars), jobs=jobs)
    assert [(keys, count) for _, _, keys, count in launches(world)] == expected


def test_rounding_of_prices_wastes_no_part_of_the_dollar_limit() -> None:
    dime = sku(offerings=(offering(dollars=0.1),))
    assert launches(world_of(dime, limits=Limits(dollars_per_hour=0.3), jobs=3))[0][3] == 3


def test_the_reached_dollar_limit_is_the_waiting_reason() -> None:
    world = world_of(ON_DEMAND, limits=Limits(dollars_per_hour=0.5))
    assert reason(world) == "the fleet's limit of $0.5 an hour is reached"


def test_a_used_up_quota_leads_to_the_next_option() -> None:
    full = Limits(quotas={"east/G": 0, "east/G-spot": 0})
    assert launches(world_of(limits=full)) == [THIRD]


@pytest.mark.parametrize(
    ("limits", "cap", "words"),
    [
        (Limits(machines=0), None, "the fleet's limit of 0 machines is reached"),
        (Limits(), 0, "max_machines of gpu (0) is reached"),
        (Limits(machines=0), 0, "max_machines of gpu (0) is reached"),
    ],
)
def test_reached_caps_on_machines_are_waiting_reasons(
    limits: Limits, cap: int | None, words: str
) -> None:
    world = world_of(dataclasses.replace(sku(), max_machines=cap), limits=limits)
    assert (launches(world), reason(world)) == ([], words)


def shared(limits: Limits) -> Catalogue:
    return catalogue(
        sku("gpu", offerings=(offering("g5", dollars=2.0),)),
        sku("cpu", offerings=(offering("c7", dollars=1.0, quota="Std", units=2),)),
        limits=limits,
    )


@pytest.mark.parametrize(
    ("jobs", "expected"),
    [
        (["cpu", "gpu", "cpu", "gpu", "gpu"], {"cpu": 2, "gpu": 1}),
        (["cpu", "gpu", "gpu", "cpu", "cpu"], {"cpu": 1, "gpu": 2}),
        (["gpu", "gpu", "gpu", "cpu"], {"gpu": 3}),
    ],
)
def test_a_shared_cap_goes_to_the_oldest_job_of_any_sku(
    jobs: list[str], expected: dict[str, int]
) -> None:
    world = World(shared(Limits(machines=3)))
    for job, label in enumerate(jobs):
        world.queue(job, labels=(label,))
        world.now += 1
    assert {launch.sku: launch.count for launch in world.intents(Launch)} == expected


def test_a_sku_that_does_not_fit_leaves_the_rest_of_a_quota_to_smaller_ones() -> None:
    world = World(shared(Limits(dollars_per_hour=3.0)))
    for job, label in enumerate(["gpu", "gpu", "cpu", "cpu"]):
        world.queue(job, labels=(label,))
        world.now += 1
    counts = {launch.sku: launch.count for launch in world.intents(Launch)}
    assert counts == {"gpu": 1, "cpu": 1}


def test_a_launch_request_asks_for_a_thousand_machines_at_most() -> None:
    world = world_of(jobs=2001)
    assert [count for _, _, _, count in launches(world)] == [1000, 1000, 1]


def test_capacity_that_is_taken_back_soon_is_not_requested() -> None:
    world = world_of()
    block = offering("p5", "a", CapacityType.CAPACITY_BLOCK, 0.0, "cr-1", 1, "cr-1", world.now + 60)
    options = (
        LaunchOption(EAST, (CapacityType.CAPACITY_BLOCK,), (block,)),
        LaunchOption(EAST, TYPES, (SPOT, OD)),
    )
    world = world_of(dataclasses.replace(sku(), launch_options=options))
    assert launches(world) == [(0, "capacity-block", ("p5/a/capacity-block/cr-1",), 1)]
    world.now += 59.9
    assert launches(world) == [(0, "capacity-block", ("p5/a/capacity-block/cr-1",), 1)]
    world.now += 0.1
    assert launches(world) == [(1, "spot", ("g5/a/spot",), 1)]


def test_the_reason_says_that_capacity_is_taken_back_soon() -> None:
    ended = offering(until=0.0, target="cr-1")
    world = world_of(sku(offerings=(ended,)))
    assert launches(world) == []
    assert reason(world) == (
        "the provider takes the capacity of east/g5.xlarge/a/on-demand/cr-1 back soon"
    )
