"""`autoscaler retry`: which holds it ends for a SKU, a provider and the fleet, and which it keeps."""

from dataclasses import replace

import pytest

from autoscaler.ledger.failures.retries import holds_to_end
from autoscaler.model import events as e
from autoscaler.model.catalogue import CapacityType, LaunchOption, Offering
from autoscaler.model.cooldowns import (
    Cooldown,
    boots_key,
    capacity_type_key,
    exits_key,
    host_key,
    launch_option_key,
    offering_key,
    quota_key,
    registration_key,
    sku_offering_key,
    throttle_key,
    zone_key,
)
from autoscaler.model.identifiers import ProviderName, SkuName
from autoscaler.model.jobs.job import JobState
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.operators import (
    WHOLE_FLEET,
    HoldKind,
    HoldTarget,
    provider_target,
    sku_target,
)
from autoscaler.model.plan import Launch
from tests.ledger.builders import ALICE, GPU, World
from tests.planner.fleets import EAST, catalogue, offering, sku

CPU, WEST = SkuName("cpu"), ProviderName("west")
POD = Offering(WEST, "pod", "", CapacityType.ON_DEMAND, 0.0, "pods", 1)
ON_CLUSTER = (LaunchOption(WEST, (CapacityType.ON_DEMAND,), (POD,)),)
SOLD = offering()
OF_GPU = {
    exits_key(GPU),
    boots_key(GPU),
    launch_option_key(GPU, 0),
    capacity_type_key(EAST, CapacityType.ON_DEMAND),
    zone_key(EAST, SOLD.zone),
    offering_key(SOLD.key),
    sku_offering_key(GPU, SOLD.key),
    quota_key(SOLD.quota_key),
    host_key(GPU, EAST, "node-1"),
}
OF_CPU = {boots_key(CPU), launch_option_key(CPU, 0), offering_key(POD.key)}
OF_GITHUB = {registration_key("org:acme")}
KEPT = {throttle_key(EAST)}


def in_trouble() -> World:
    world = World(catalogue(sku(), replace(sku("cpu"), launch_options=ON_CLUSTER)))
    for key in OF_GPU | OF_CPU | OF_GITHUB | KEPT:
        kind = FailureClass.THROTTLED if key in KEPT else FailureClass.CAPACITY
        world.state.set_cooldown(Cooldown(key, world.now + 1800.0, 3, f"why {key}", kind))
    world.do(e.HeldByOperator, HoldKind.PAUSED, sku_target(CPU), ALICE)
    return world


@pytest.mark.parametrize(
    ("target", "ended"),
    [
        (WHOLE_FLEET, OF_GPU | OF_CPU | OF_GITHUB),
        (sku_target(GPU), OF_GPU | OF_GITHUB),
        (sku_target(CPU), OF_CPU | OF_GITHUB),
        (provider_target(EAST), OF_GPU),
        (provider_target(WEST), OF_CPU),
    ],
)
def test_a_retry_ends_the_holds_of_its_target_and_no_other(
    target: HoldTarget, ended: set[str]
) -> None:
    world = in_trouble()
    before = {key for key, row in world.state.cooldowns.items() if row.failures}
    assert {row.key for row in holds_to_end(world.state, target, world.now)} == ended
    world.do(e.RetriedByOperator, target, ALICE)
    after = {key for key, row in world.state.cooldowns.items() if row.failures}
    assert before - after == ended
    assert world.fleet().operator_holds, "only `autoscaler resume` ends a pause"
    assert holds_to_end(world.state, target, world.now) == []


def test_the_history_says_who_retried_what() -> None:
    world = World()
    world.do(e.RetriedByOperator, provider_target(EAST), ALICE)
    (row,) = world.ledger.take_changes().history
    assert (row.kind, row.record, row.event, row.detail) == (
        "provider",
        "east",
        "retried",
        "by alice",
    )


def test_a_job_on_hold_is_retried_at_once() -> None:
    world = World()
    world.queue(1)
    for name in "ab":
        runner = world.ready(name)
        world.after(120)
        world.do(e.MachineExited, world.runner(runner).machine, "no job came")
        world.observe(1, JobState.QUEUED, read=True)
    assert world.state.on_hold
    world.do(e.RetriedByOperator, sku_target(GPU), ALICE)
    world.after(1)
    assert [launch.count for launch in world.intents(Launch)] == [1]
