"""Turns to register: how many machines may be launched now, and when a call is worth while."""

import dataclasses

import pytest

from autoscaler.model.catalogue import Catalogue, OperatingSystem, RegistrationRate
from autoscaler.model.jobs import JobState
from autoscaler.model.plan import Launch
from autoscaler.planner.matching import Matching, Supply, SupplyKind
from autoscaler.planner.registration import Pipeline, Turns, take_turns
from tests.ledger.builders import GPU, GPU_CLASS, START, World
from tests.planner.fleets import catalogue, sku

GITHUB = RegistrationRate()
SLOW = RegistrationRate(burst=30, per_second=0.1)


def turns(known: Catalogue, level: float, pipeline: Pipeline | None = None) -> Turns:
    """Turns with this many tokens in the bucket of `acme` now."""
    world = World(known)
    world.state.mint_levels["acme"] = (level, START)
    return Turns(world.fleet(), {"acme": pipeline} if pipeline is not None else {})


@pytest.mark.parametrize(
    ("level", "pipeline", "allowed"),
    [
        # Nothing on its way: what is left at the time it parks (60 s on), and a minute's worth.
        (30.0, None, 6 + 30),
        (0.0, None, 6 + 6),
        (10.0, None, 6 + 16),
        (27.0, None, 6 + 30),
        # Parked machines take their turns all the while.
        (0.0, Pipeline(parked=4), 6 + 2),
        (0.0, Pipeline(parked=6), 6 + 0),
        (0.0, Pipeline(parked=10), 6 - 4),
        (0.0, Pipeline(parked=12), 0),
        (0.0, Pipeline(parked=100), 0),
        # Booting ones take none before the first of them parks.
        (0.0, Pipeline(coming=4, oldest=START), 6 + 6 - 4),
        (10.0, Pipeline(coming=4, oldest=START), 6 + 16 - 4),
        (0.0, Pipeline(coming=10, oldest=START), 6 + 6 - 10),
        (0.0, Pipeline(coming=12, oldest=START), 0),
        (0.0, Pipeline(coming=10, oldest=START - 50), 6 + 1 - 5),
        (0.0, Pipeline(coming=10, oldest=START - 500), 6 - 4),
        (0.0, Pipeline(coming=4), 6 + 6 - 4),
        # Both: parked ones are in the way of those that come.
        (0.0, Pipeline(parked=2, coming=4, oldest=START), 6 + 0),
    ],
)
def test_as_many_as_find_their_turn_within_a_minute_of_being_parked(
    level: float, pipeline: Pipeline | None, allowed: int
) -> None:
    assert turns(catalogue(registration=SLOW), level, pipeline).allowed("acme", GPU) == allowed


def test_what_this_plan_took_already_is_left_out() -> None:
    known = turns(catalogue(registration=SLOW), 0.0)
    known.taken["acme"] = 5
    assert known.allowed("acme", GPU) == 7
    known.taken["acme"] = 50
    assert known.allowed("acme", GPU) == 0
    assert known.allowed("other", GPU) == 36


def test_a_slow_boot_lets_more_be_launched() -> None:
    windows = dataclasses.replace(sku(), os=OperatingSystem.WINDOWS)
    assert turns(catalogue(windows, registration=SLOW), 0.0).allowed("acme", GPU) == 18 + 6
    measured = turns(catalogue(registration=SLOW), 0.0)
    fleet = dataclasses.replace(measured.fleet, boot_seconds={GPU: 20.0})
    assert Turns(fleet).allowed("acme", GPU) == 2 + 6


@pytest.mark.parametrize(
    ("rate", "wanted", "allowed", "taken", "worth"),
    [
        (GITHUB, 1000, 149, 0, False),
        (GITHUB, 1000, 150, 0, True),
        (GITHUB, 1000, 100, 50, True),
        (GITHUB, 1000, 100, 49, False),
        (GITHUB, 10, 9, 0, False),
        (GITHUB, 10, 10, 0, True),
        (RegistrationRate(burst=1, per_second=0.001), 5, 1, 0, True),
        (RegistrationRate(burst=1, per_second=0.001), 5, 0, 0, False),
    ],
)
def test_a_call_waits_for_a_minutes_worth_of_turns_or_for_all_that_is_wanted(
    rate: RegistrationRate, wanted: int, allowed: int, taken: int, worth: bool
) -> None:
    known = turns(catalogue(registration=rate), 0.0)
    known.taken["acme"] = taken
    assert known.worth_a_call("acme", wanted, allowed) is worth


def test_the_pipeline_is_what_serves_jobs_and_is_not_registered_yet() -> None:
    world = World(catalogue(sku("gpu"), sku("cpu")))
    world.launch(1, "old", "cpu")
    world.now += 5
    world.launch(2, "new")
    world.now += 5
    world.queue(1)
    gpu = Supply(SupplyKind.PARKED, sku=GPU)
    coming = Supply(SupplyKind.COMING, sku=GPU)
    unsent = Supply(SupplyKind.UNSENT, sku=GPU)
    ready = Supply(SupplyKind.RUNNER, runner_class=GPU_CLASS)
    matching = Matching()
    matching.flow.update(
        {
            (GPU_CLASS, gpu): 3,
            (GPU_CLASS, coming): 2,
            (GPU_CLASS, unsent): 4,
            (GPU_CLASS, ready): 9,
        }
    )
    found = take_turns(world.fleet(), matching)
    assert found.pipelines == {"acme": Pipeline(parked=3, coming=6, oldest=START + 5)}


def test_the_burst_is_launched_for_at_once_and_no_more_than_can_register() -> None:
    world = World(catalogue(registration=GITHUB))
    world.queue(*range(1, 501))
    assert [launch.count for launch in world.intents(Launch)] == [180]
    (served, rest) = world.plan().waiting[GPU_CLASS]
    assert (served.count, rest.count) == (180, 320)
    assert rest.reason == "its turn to register at GitHub comes later"


def test_accounts_do_not_share_their_turns() -> None:
    known = catalogue(sku("gpu"), sku("cpu"), registration=GITHUB)
    more = dataclasses.replace(known.scopes[0], owner="other")
    world = World(dataclasses.replace(known, scopes=(*known.scopes, more)))
    world.queue(*range(1, 301))
    for job in range(301, 601):
        world.observe(job, JobState.QUEUED, ("cpu",), repository="other/widgets")
    launches = {launch.sku: launch.count for launch in world.intents(Launch)}
    assert launches == {"gpu": 180, "cpu": 180}
