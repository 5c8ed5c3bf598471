"""What a changed catalogue would do: the same as a plan after it is in force, and nothing changes."""

import dataclasses

import pytest

from autoscaler.model.catalogue import Catalogue, IdlePolicy, Limits
from autoscaler.model.jobs.job import JobState
from autoscaler.planner.planner import plan
from autoscaler.views.preview import Preview, demand_of, preview, under
from tests.ledger.builders import World
from tests.planner.fleets import EAST, catalogue, offering, sku


def previewed(world: World, changed: Catalogue) -> Preview:
    state = world.state
    queued = [job for job in state.jobs.values() if job.state is JobState.QUEUED]
    fleet = under(world.fleet(), demand_of(changed, queued))
    return preview(fleet, plan(fleet))


def busy() -> World:
    world = World(catalogue(sku(max_machines=1), sku("cpu")))
    world.queue(1, 2, 3)
    world.queue(4, labels=("cpu",))
    world.queue(5, labels=("new",))
    world.carry_out()
    world.make_ready(1, "r", "cpu")
    return world


CHANGES = [
    catalogue(sku(max_machines=3), sku("cpu")),
    catalogue(sku(max_machines=1), sku("new")),
    catalogue(sku(max_machines=3, labels=("new",)), limits=Limits(machines=4)),
    catalogue(dataclasses.replace(sku(max_machines=4), fair_share=0.5), sku("cpu"), sku("new")),
    catalogue(sku("cpu", idle=IdlePolicy(minimum=3))),
]


@pytest.mark.parametrize("changed", CHANGES)
def test_the_preview_is_the_plan_after_the_change(changed: Catalogue) -> None:
    world = busy()
    before = world.plan()
    seen = previewed(world, changed)
    assert world.plan() == before
    world.ledger.change_catalogue(changed)
    made = world.plan()
    assert seen == preview(world.fleet(), made)


def test_more_machines_are_launched_with_their_price() -> None:
    dear = sku(offerings=(offering(dollars=2.0),), max_machines=3)
    seen = previewed(busy(), catalogue(dear, sku("cpu")))
    (launch,) = seen.launches
    assert (launch.sku, launch.count, launch.dollars_per_hour) == ("gpu", 2, 4.0)
    assert seen.dollars_after == seen.dollars_before + 4.0
    assert (seen.terminated, seen.without_sku) == (0, 1)


def test_limits_below_the_machines_that_exist_are_named() -> None:
    low = Limits(machines=1, dollars_per_hour=1.5)
    seen = previewed(busy(), catalogue(sku(max_machines=0), sku("cpu"), limits=low))
    assert seen.exceeded == (
        "limits.machines is 1, and the fleet has 3 machines",
        "limits.dollars_per_hour is $1.50, and the machines cost $3.00 an hour",
        "max_machines of gpu is 0, and it has 1 machine",
    )
    assert seen.terminated == 0
    assert previewed(busy(), catalogue(sku(max_machines=1), sku("cpu"))).exceeded == ()


def test_jobs_that_others_serve_do_not_count_as_jobs_without_a_sku() -> None:
    world = busy()
    world.queue(6, labels=("ubuntu-latest",))
    world.observe(7, JobState.QUEUED, repository="stranger/widgets")
    seen = previewed(world, catalogue(sku(), sku("cpu")))
    assert seen.without_sku == sum(map(len, world.fleet().unmatched.values())) == 1


def test_launch_requests_of_the_same_kind_are_added_up() -> None:
    changed = dataclasses.replace(
        catalogue(sku("cpu", idle=IdlePolicy(minimum=100_000))), largest_requests={EAST: 250}
    )
    (launch,) = previewed(World(changed), changed).launches
    assert (launch.count, launch.dollars_per_hour) == (100_000, 100_000.0)


def test_a_removed_sku_terminates_its_ready_machines_and_leaves_its_jobs() -> None:
    seen = previewed(busy(), catalogue(sku(max_machines=1)))
    (ended,) = seen.terminations
    assert (ended.machine, ended.sku, ended.reason) == ("r0", "cpu", "surplus")
    assert (seen.terminated, seen.without_sku) == (1, 2)
    assert seen.dollars_after == seen.dollars_before - 1.0
    blocked = [(one.sku, one.count, one.code) for one in seen.waiting if one.blocked]
    assert blocked == [("gpu", 2, "max_machines")]
