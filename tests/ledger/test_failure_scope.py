"""What a failure concerns: the offering, its zone, its capacity type, its quota, the provider.

Also the hold after a machine that ended before it was ready, and quotas that were read.
"""

from dataclasses import replace

import pytest

from autoscaler.model import events as e
from autoscaler.model.catalogue import CapacityType, Limits
from autoscaler.model.machines.failures import FailureClass, FailureScope
from autoscaler.model.machines.interruptions import NoticeKind
from autoscaler.model.machines.machine import MachineState
from autoscaler.model.plan import Launch
from tests.ledger.builders import GPU, WHY, World, failure, listed
from tests.planner.fleets import EAST, catalogue, offering, sku

SPOT, ON_DEMAND = CapacityType.SPOT, CapacityType.ON_DEMAND
BOTH = tuple(offering("g5.xlarge", zone, kind) for kind in (SPOT, ON_DEMAND) for zone in ("a", "b"))
OTHER = (offering("g6.xlarge", "a", SPOT, quota="spot/G"),)

REACHES = [
    ("zone a", FailureClass.CAPACITY, FailureScope.ZONE, 180.0),
    ("spot", FailureClass.CONFIGURATION, FailureScope.CAPACITY_TYPE, 60.0),
    ("everything", FailureClass.QUOTA, FailureScope.PROVIDER, 60.0),
    ("one offering", FailureClass.CAPACITY, None, 180.0),
]
ASKED_NEXT = {
    "zone a": (["east/g5.xlarge/b/spot"], []),
    "spot": (["east/g5.xlarge/a/on-demand", "east/g5.xlarge/b/on-demand"], []),
    "everything": ([], []),
    "one offering": (["east/g5.xlarge/b/spot"], ["east/g6.xlarge/a/spot"]),
}


def two_skus() -> World:
    return World(catalogue(sku(offerings=BOTH), sku("other", offerings=OTHER)))


def offered(world: World) -> tuple[list[str], list[str]]:
    """What is asked for next, for each SKU."""
    found: dict[str, list[str]] = {"gpu": [], "other": []}
    for launch in world.intents(Launch):
        found[launch.sku] = list(launch.offerings)
    return found["gpu"], found["other"]


def reported(
    failure: FailureClass, scope: FailureScope | None, code: str = "Code"
) -> e.LaunchFailure:
    return e.LaunchFailure(failure, code, "words", "east/g5.xlarge/a/spot", scope)


@pytest.mark.case(
    "no capacity: only that type, zone and capacity type is on hold, for 3 minutes at first",
    topic="EC2's API",
    source="Karpenter pkg/cache",
)
@pytest.mark.case(
    "a quota is exhausted: its whole family is on hold, for longer",
    topic="EC2's API",
    source="EC2: error codes",
)
@pytest.mark.parametrize(("name", "failure", "scope", "hold"), REACHES)
def test_a_failure_puts_its_scope_on_hold_for_every_sku_and_nothing_else(
    name: str, failure: FailureClass, scope: FailureScope | None, hold: float
) -> None:
    world = two_skus()
    world.send(1)
    world.answer("c", failures=[reported(failure, scope)])
    world.queue(1)
    world.queue(2, labels=("other",))
    assert offered(world) == ASKED_NEXT[name]
    world.now += hold - 0.1
    assert offered(world) == ASKED_NEXT[name]
    world.now += 0.1
    everywhere = ["east/g5.xlarge/a/spot", "east/g5.xlarge/b/spot"]
    assert offered(world) == (everywhere, ["east/g6.xlarge/a/spot"])


def test_the_waiting_reason_names_what_is_on_hold() -> None:
    world = two_skus()
    world.send(1)
    world.answer("c", failures=[reported(FailureClass.QUOTA, FailureScope.PROVIDER, "MaxFleets")])
    world.queue(1)
    (runs,) = world.plan().waiting.values()
    assert runs[0].message == (
        "spot at east is on hold: MaxFleets: words; on-demand at east is on hold: MaxFleets: words"
    )


def quota_usage(world: World) -> set[str]:
    return {key for key, one in world.state.cooldowns.items() if one.failures}


def test_a_ready_machine_launched_after_a_hold_ends_it_for_its_zone_and_type() -> None:
    world = two_skus()
    world.send(1, "held")
    for scope in (FailureScope.ZONE, FailureScope.PROVIDER):
        world.do(e.LaunchRequestRecorded, *_call(f"call-{scope}"))
        world.answer(f"call-{scope}", failures=[reported(FailureClass.QUOTA, scope)])
    assert quota_usage(world) == {
        "zone:east/a",
        "capacity_type:east/spot",
        "capacity_type:east/on-demand",
        "capacity_type:east/capacity-block",
    }
    world.now += 600.0
    world.make_ready(1, "other")
    assert quota_usage(world) == {"capacity_type:east/spot", "capacity_type:east/capacity-block"}


def test_a_machine_launched_before_a_hold_does_not_end_it() -> None:
    """Launches fail at a volume limit while machines launched before them become ready one by one."""
    world = two_skus()
    world.launch(3, "before")
    world.now += 60.0
    world.do(e.LaunchRequestRecorded, *_call("refused"))
    world.answer("refused", failures=[reported(FailureClass.QUOTA, FailureScope.PROVIDER)])
    known = quota_usage(world)
    for machine in ("before0", "before1", "before2"):
        world.now += 5.0
        world.boot(machine)
        world.do(e.HealthChecksReported, machine, True, "ok")
        assert quota_usage(world) == known
    assert world.state.cooldowns["capacity_type:east/on-demand"].failures == 1


def test_a_machine_requested_before_its_offering_failed_does_not_end_the_hold() -> None:
    world = two_skus()
    first, *_ = world.keys("other")
    world.send(1, "early", "other")
    world.send(1, "late", "other")
    world.now += 1.0
    world.answer("late", failures=[failure(FailureClass.CAPACITY, first)])
    world.answer("early", "i-1")
    assert f"offering:{first}" in quota_usage(world)


def _call(name: str) -> tuple[object, ...]:
    keys = tuple(one.key for one in BOTH if one.capacity_type is SPOT)
    launch = Launch(GPU, EAST, 0, SPOT, keys, 1, WHY)
    return name, launch, (f"{name}-0",), f"token-{name}"


@pytest.mark.parametrize("stage", ["launched", "booted"])
@pytest.mark.parametrize(
    ("failure", "scope", "key", "hold"),
    [
        (FailureClass.CAPACITY, None, "offering:east/g5.xlarge/a/on-demand", 180.0),
        (FailureClass.CAPACITY, FailureScope.ZONE, "zone:east/a", 180.0),
        (FailureClass.QUOTA, None, "quota:east/G", 60.0),
        (FailureClass.QUOTA, FailureScope.PROVIDER, "capacity_type:east/on-demand", 60.0),
        (FailureClass.CONFIGURATION, None, "option:gpu/0", 60.0),
    ],
)
def test_a_machine_that_ended_before_ready_puts_the_scope_of_its_failure_on_hold(
    stage: str, failure: FailureClass, scope: FailureScope | None, key: str, hold: float
) -> None:
    world = World()
    world.launch(1)
    if stage == "booted":
        world.boot("c0")
    error = "Client.VolumeLimitExceeded"
    shown = listed("i-c0", terminated=True, reason=f"{error}: too many disks")
    shown = replace(shown, failure=failure, scope=scope, error=error)
    world.lists(shown)
    world.lists(shown)
    machine, cooldown = world.machine("c0"), world.state.cooldowns[key]
    assert (machine.state, machine.failure) == (MachineState.TERMINATED, failure)
    assert (cooldown.failures, cooldown.until) == (1, world.now + hold)
    assert (cooldown.error, cooldown.reason) == (error, f"{error}: too many disks")
    reported = [row.event for row in world.ledger.take_changes().history if row.record == "c0"]
    assert reported[-2:] == ["failed", "terminated"]
    if failure is not FailureClass.CONFIGURATION:
        assert "option:gpu/0" not in world.state.cooldowns


@pytest.mark.case(
    "a spot machine that was up is interrupted: its offering is on hold",
    topic="EC2's machines",
    source="Karpenter: disruption",
)
def test_a_spot_interruption_of_a_running_machine_puts_only_its_offering_on_hold() -> None:
    world = World()
    world.make_ready(2)
    shown = [
        replace(listed(f"i-c{n}", terminated=True), reason="Server.Spot: taken") for n in (0, 1)
    ]
    world.lists(
        replace(shown[0], failure=FailureClass.CAPACITY),
        replace(shown[1], failure=FailureClass.CONFIGURATION),
    )
    assert {m.state for m in world.state.machines.values()} == {MachineState.TERMINATED}
    assert {m.failure for m in world.state.machines.values()} == {None}
    held = {key for key, one in world.state.cooldowns.items() if one.failures}
    assert held == {"offering:east/g5.xlarge/a/on-demand"}


def test_a_machine_of_a_pruned_launch_request_puts_nothing_on_hold() -> None:
    world = World()
    world.launch(1)
    world.state.drop(world.call())
    shown = listed("i-c0", terminated=True, reason="Server.InsufficientInstanceCapacity: none")
    world.lists(replace(shown, failure=FailureClass.CAPACITY))
    assert world.machine("c0").failure is FailureClass.CAPACITY
    assert world.state.cooldowns == {}


def launches(world: World) -> int:
    return sum(launch.count for launch in world.intents(Launch))


def test_the_newest_reading_of_quotas_caps_launches() -> None:
    world = World(catalogue(limits=Limits(quotas={"east/G": 40})))
    world.queue(*range(1, 21))
    assert launches(world) == 10
    world.do(e.QuotasRead, EAST, (("east/G", 12),))
    assert launches(world) == 3
    assert "the quota east/G is used up" in {
        run.message for runs in world.plan().waiting.values() for run in runs
    }
    world.do(e.QuotasRead, "west", (("west/G", 0),))
    assert launches(world) == 3
    world.do(e.QuotasRead, EAST, ())
    assert launches(world) == 10


@pytest.mark.case(
    "open launch requests count at their most expensive offering in every limit",
    topic="EC2's API",
    source="GAR#5007",
)
def test_open_launch_requests_use_the_quota_of_their_largest_offering() -> None:
    small, large = offering("g5.xlarge", units=4), offering("g5.4xlarge", units=16)
    world = World(catalogue(sku(offerings=(small, large))))
    world.do(e.QuotasRead, EAST, (("east/G", 36),))
    world.send(2)
    assert world.fleet().usage.by_quota["east/G"] == 32
    world.queue(1, 2, 3, 4)
    (launch,) = world.intents(Launch)
    assert (launch.count, launch.offerings) == (1, (small.key,))


IN_GROUP = tuple(offering("g5.xlarge", zone, ON_DEMAND, target="near") for zone in ("a", "b"))
OUTSIDE = tuple(offering("g5.xlarge", zone, ON_DEMAND) for zone in ("a", "b"))


def grouped(first: str) -> World:
    """One SKU in a placement group, and one outside it, with the same instance type and zones."""
    skus = {"gpu": IN_GROUP, "other": OUTSIDE}
    if first == "other":
        skus = {"gpu": OUTSIDE, "other": IN_GROUP}
    return World(catalogue(*(sku(name, offerings=found) for name, found in skus.items())))


@pytest.mark.case(
    "a placement group has no capacity: launches outside it go on, and the other way round",
    topic="EC2's API",
    source="Karpenter: placement groups",
)
@pytest.mark.parametrize(
    ("first", "asked"),
    [
        (
            "gpu",
            (
                ["east/g5.xlarge/b/on-demand/near"],
                ["east/g5.xlarge/a/on-demand", "east/g5.xlarge/b/on-demand"],
            ),
        ),
        (
            "other",
            (
                ["east/g5.xlarge/b/on-demand"],
                ["east/g5.xlarge/a/on-demand/near", "east/g5.xlarge/b/on-demand/near"],
            ),
        ),
    ],
)
def test_what_is_short_in_a_placement_group_is_not_short_outside_it(
    first: str, asked: tuple[list[str], list[str]]
) -> None:
    world = grouped(first)
    world.send(1)
    # EC2 names the type and the zone; the request says the group.
    refused = e.LaunchFailure(FailureClass.CAPACITY, "Code", "words", "east/g5.xlarge/a/on-demand")
    world.answer("c", failures=[refused])
    world.queue(1)
    world.queue(2, labels=("other",))
    assert offered(world) == asked


def test_an_error_of_an_override_in_a_placement_group_holds_back_only_that_override() -> None:
    world = grouped("gpu")
    world.send(1)
    words = ("InvalidParameterCombination", "words", "east/g5.xlarge/a/on-demand")
    world.answer("c", failures=[e.LaunchFailure(FailureClass.CONFIGURATION, *words)])
    world.queue(1)
    assert offered(world)[0] == ["east/g5.xlarge/b/on-demand/near"]


def test_a_machine_that_ended_before_ready_holds_back_its_placement_group_only() -> None:
    world = grouped("gpu")
    world.launch(1)
    shown = listed("i-c0", terminated=True, reason="Server.InsufficientInstanceCapacity: none")
    world.lists(replace(shown, failure=FailureClass.CAPACITY))
    assert quota_usage(world) == {"offering:east/g5.xlarge/a/on-demand/near"}


@pytest.mark.parametrize("first", ["gpu", "other"])
def test_an_interruption_holds_back_the_offering_of_the_machine(first: str) -> None:
    world = grouped(first)
    world.make_ready(1)
    world.do(e.MachineNoticed, EAST, "i-c0", NoticeKind.SPOT_INTERRUPTION, world.now, "words")
    within = "/near" if first == "gpu" else ""
    assert quota_usage(world) == {f"offering:east/g5.xlarge/a/on-demand{within}"}
