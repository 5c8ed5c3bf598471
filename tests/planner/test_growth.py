"""The cost of a plan as a fleet grows, in function calls, which are the same on every host."""

import random
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import FrameType

import pytest

import autoscaler
from autoscaler.model.catalogue import IdlePolicy, RegistrationRate
from autoscaler.model.fleet import Fleet
from autoscaler.model.plan import Launch, Plan
from autoscaler.planner.matching.classes import classes_of
from autoscaler.planner.matching.maximum import Supply, SupplyKind, match
from autoscaler.planner.matching.supply import count_supply
from autoscaler.planner.placement import Headroom
from autoscaler.planner.planner import plan
from autoscaler.planner.registration import RegistrationBudget, registrable_machines
from autoscaler.planner.scale_up import scale_up
from benchmarks.crowded_fleet import NOW, UNLIMITED, Crowd, crowded
from tests.ledger.builders import World
from tests.planner.fleets import apply_plan, catalogue, sku

CODE = str(Path(autoscaler.__file__).parent)


def calls_of(fleet: Fleet, function: str = "") -> int:
    """Return how many calls of this project's functions, or of one of them, a plan of this fleet needs.

    Mutation testing wraps each of these functions in others, which do not count.
    """
    calls = 0

    def count(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        code = frame.f_code
        ours = event == "call" and code.co_filename.startswith(CODE)
        calls += ours and code.co_name.endswith(function)

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        plan(fleet)
    finally:
        sys.setprofile(before)
    return calls


def fleet_of(**changes: int) -> Fleet:
    return crowded(replace(Crowd(200, 400, skus=4), **changes)).fleet(NOW)  # type: ignore[arg-type]


def test_the_cost_of_a_plan_grows_in_proportion_to_classes_with_shared_labels() -> None:
    few, many = (fleet_of(classes=n, most_machines=200) for n in (50, 200))
    assert calls_of(many) < 6 * calls_of(few)
    assert calls_of(many) < 100 * 200


def test_more_waiting_jobs_of_the_same_classes_cost_no_more() -> None:
    some, many = (fleet_of(jobs=n, most_machines=200) for n in (1_000, 4_000))
    assert calls_of(many) < 1.1 * calls_of(some)


def test_a_burst_is_placed_in_groups_of_machines() -> None:
    some, many = (fleet_of(machines=0, jobs=n, classes=20) for n in (500, 4_000))
    launches = [one for one in plan(many).intents if isinstance(one, Launch)]
    assert sum(launch.count for launch in launches) == 4_000
    assert calls_of(many) < 1.2 * calls_of(some)


def test_matching_a_burst_in_an_empty_fleet_costs_few_function_calls() -> None:
    """The matching skips supply without machines, and does not search again what a launch serves."""
    assert calls_of(fleet_of(machines=0, jobs=4_000, skus=20)) < 9_000


def test_planning_for_machines_with_a_waiting_job_costs_few_function_calls() -> None:
    fleet = fleet_of(working=0, listening=20, ready=40, skus=20)
    assert calls_of(fleet) < 9_000


def launched(made: Plan) -> Counter[str]:
    """Return how many machines a plan launches by SKU."""
    found = Counter[str]()
    for intent in made.intents:
        if isinstance(intent, Launch):
            found[intent.sku] += intent.count
    return found


@pytest.mark.parametrize("jobs", [400, 4_000])
def test_jobs_beyond_the_registration_rate_launch_no_machines_through_ready_minimums(
    jobs: int,
) -> None:
    """A machine of a ready minimum stays ready while its job's account can register no runner."""
    rate = RegistrationRate(burst=30, per_second=0.1)
    crowd = Crowd(200, jobs, skus=40, registration=rate)
    without, ledger = crowded(crowd).fleet(NOW), crowded(replace(crowd, idle_minimum=1))
    made = plan(ledger.fleet(NOW))
    assert calls_of(ledger.fleet(NOW), "_serve_minimums") <= 3
    assert launched(made).total() <= launched(plan(without)).total() + 40
    apply_plan(ledger, made, NOW)
    assert not launched(plan(ledger.fleet(NOW)))


@pytest.mark.parametrize("jobs", [50, 500])
@pytest.mark.parametrize("most", [0, 1, None])
def test_jobs_that_take_the_machines_of_ready_minimums_cost_few_matchings(
    jobs: int, most: int | None
) -> None:
    """The first SKU of the jobs is at its limit. The other two SKUs serve the jobs, too."""
    minimum = IdlePolicy(minimum=1)
    first = sku("a-full", labels=("shared",), max_machines=0, idle=minimum)
    second = sku("b-small", labels=("shared",), max_machines=most, idle=minimum)
    third = sku("c-large", labels=("shared",), idle=minimum)
    world = World(catalogue(first, second, third))
    for job in range(1, jobs + 1):
        world.queue(job, labels=("shared",))
    fleet = world.ledger.fleet(world.now)
    made = plan(fleet)
    # Each job and each minimum within its SKU's limit has one machine.
    assert launched(made).total() == jobs + (1 if most == 0 else 2 if most is None else 1)
    assert not any(run.blocked for runs in made.waiting.values() for run in runs)
    assert calls_of(fleet, "_serve_minimums") <= 4
    apply_plan(world.ledger, made, world.now)
    assert not launched(plan(world.ledger.fleet(world.now)))


@pytest.mark.parametrize("working", [0, 60, 90])
@pytest.mark.parametrize("machines", [0, 30, 120])
def test_after_a_plan_is_carried_out_nothing_more_is_launched(machines: int, working: int) -> None:
    minimum = IdlePolicy(minimum=3)
    for seed in range(4):
        crowd = Crowd(machines, 90, 40, skus=5, working=working, listening=4, ready=5, seed=seed)
        ledger = crowded(crowd)
        known = ledger.state.catalogue
        skus = {name: replace(sku, idle=minimum) for name, sku in known.skus.items()}
        ledger.replace_catalogue(replace(known, skus=skus))
        made = plan(ledger.fleet(NOW))
        assert sum(one.count for one in made.intents if isinstance(one, Launch))
        apply_plan(ledger, made, NOW)
        after = plan(ledger.fleet(NOW))
        assert not [one for one in after.intents if isinstance(one, Launch)]
        assert not any(run.blocked for runs in after.waiting.values() for run in runs)


@pytest.mark.parametrize("registration", [UNLIMITED, RegistrationRate(burst=20, per_second=1.0)])
@pytest.mark.parametrize("most_machines", [None, 250])
@pytest.mark.parametrize("seed", range(4))
def test_matching_again_after_launches_in_order_of_age_changes_nothing(
    seed: int, most_machines: int | None, registration: RegistrationRate
) -> None:
    crowd = Crowd(
        200,
        500,
        100,
        ready=20,
        listening=10,
        working=30,
        registration=registration,
        most_machines=most_machines,
        seed=seed,
    )
    fleet = crowded(crowd).fleet(NOW)
    supply, classes = count_supply(fleet, set(), ()), classes_of(fleet)
    registrable = registrable_machines(fleet, supply.by_pool, ())
    matching = match(fleet, supply.by_pool, {}, registrable, classes)
    budget = RegistrationBudget(fleet, registrable)
    step = scale_up(classes, Headroom(fleet), matching, budget, {})
    assert step.launched
    assert not step.overtaken
    assert not matching.moved
    matching.add_launched(step.launched)
    for placement, count in step.placed.items():
        supply.by_pool[Supply(SupplyKind.UNSENT, sku=placement.sku)] += count
    again = match(fleet, supply.by_pool, {}, registrable, classes)
    assert again.matched == matching.matched
    assert again.used == matching.used
    assert again.kinds == matching.kinds
    assert sorted(again.flows) == sorted(matching.flows)


def test_a_machine_for_a_younger_job_is_matched_again_and_serves_an_older_one() -> None:
    """The older job's first SKU is at its limit, but a machine of its second SKU serves the job too."""
    one = sku("one", labels=("both",), max_machines=0)
    two = sku("two", labels=("both",), max_machines=1)
    world = World(catalogue(one, two))
    world.queue(1, labels=("both",))
    world.now += 1.0
    world.queue(2, labels=("two",))
    made = plan(world.ledger.fleet(world.now))
    waiting = {demand.labels: runs for demand, runs in made.waiting.items()}
    assert [run.blocked for run in waiting["both",]] == [False]
    assert [run.blocked for run in waiting["two",]] == [True]


@pytest.mark.parametrize("seed", range(5))
def test_jobs_of_all_queues_are_iterated_by_age(seed: int) -> None:
    ledger = crowded(Crowd(40, 60, 20, working=50, apart=0.5, seed=seed))
    for job in random.Random(seed).sample(list(ledger.state.jobs.values()), 30):
        with ledger.state.changing(job):
            job.disputed = not job.disputed
    fleet = ledger.fleet(NOW)
    assert list(fleet.waiting) == sorted(
        (job.queued_at, demand, job.id)
        for demand, queue in fleet.queues.items()
        for job in queue.values()
    )
