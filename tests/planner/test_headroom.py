"""Headroom under the caps while a plan is made, and what a cancelled slot returns to it."""

import dataclasses

import pytest

from autoscaler.model import events as e
from autoscaler.model.catalogue import LaunchRate, LaunchTokens, Limits, Rate
from autoscaler.model.cooldowns import Cooldown, boots_key
from autoscaler.model.identifiers import LaunchRequestId
from autoscaler.model.plan import CancelLaunchRequest, Launch, ResendLaunchRequest
from autoscaler.planner.placement import Headroom
from tests.ledger.builders import GPU, START, World
from tests.planner.fleets import EAST, catalogue, sku

CAPPED = catalogue(
    sku("gpu", max_machines=3),
    limits=Limits(machines=5, dollars_per_hour=7.0, quotas={"east/G": 24}),
)


def left(headroom: Headroom) -> tuple[int, float, int]:
    return (headroom.machines, headroom.dollars, headroom.in_quota("east/G"))


def test_a_cancelled_slot_frees_headroom_under_every_cap() -> None:
    world = World(CAPPED)
    world.record(2)
    headroom = Headroom(world.fleet())
    assert (left(headroom), headroom.in_sku(CAPPED.skus[GPU])) == ((3, 5.0, 16), 1)
    headroom.give_back(world.call(), 1)
    assert (left(headroom), headroom.in_sku(CAPPED.skus[GPU])) == ((4, 6.0, 20), 2)


def test_a_cancelled_slot_of_a_removed_sku_frees_headroom_too() -> None:
    world = World(CAPPED)
    world.record(1)
    world.ledger.replace_catalogue(dataclasses.replace(CAPPED, skus={}))
    headroom = Headroom(world.fleet())
    headroom.give_back(world.call(), 1)
    assert left(headroom) == (5, 7.0, 24)


@pytest.mark.parametrize(("dropped", "calls", "machines"), [(1, 1.0, 7.0), (2, 2.0, 8.0)])
def test_cancelled_slots_return_their_machines_and_a_whole_request_to_the_launch_rate(
    dropped: int, calls: float, machines: float
) -> None:
    rates = {EAST: LaunchRate(Rate(2, 0.5), Rate(8, 0.5))}
    world = World(dataclasses.replace(catalogue(), launch_rates=rates))
    world.record(2)
    headroom = Headroom(world.fleet())
    assert headroom.tokens == {EAST: LaunchTokens(1.0, 6.0)}
    headroom.give_back(world.call(), dropped)
    assert headroom.tokens == {EAST: LaunchTokens(calls, machines)}


def test_returned_launch_tokens_do_not_exceed_the_bucket() -> None:
    rates = {EAST: LaunchRate(Rate(2, 0.5), Rate(8, 0.5))}
    world = World(dataclasses.replace(catalogue(), launch_rates=rates))
    world.record(1)
    world.now += 60.0
    headroom = Headroom(world.fleet())
    headroom.give_back(world.call(), 1)
    assert headroom.tokens == {EAST: rates[EAST].full}


def test_a_cancelled_launch_request_makes_its_token_available_in_the_same_plan() -> None:
    rates = {EAST: LaunchRate(Rate(1, 0.01))}
    known = catalogue(sku("gpu"), sku("cpu"))
    world = World(dataclasses.replace(known, launch_rates=rates))
    world.record(1, sku="cpu")
    world.queue(1)
    made = world.carry_out()
    assert [type(intent) for intent in made.intents] == [CancelLaunchRequest, Launch]
    assert world.plan().intents == ()


def test_a_cancelled_probe_allows_another_probe() -> None:
    world = World()
    world.state.set_cooldown(Cooldown(boots_key(GPU), world.now, 3, "no gpu"))
    world.record(2)
    headroom = Headroom(world.fleet())
    assert headroom.circuit_breakers.sku_blocked(GPU) is not None
    headroom.give_back(world.call(), 2)
    assert headroom.circuit_breakers.sku_blocked(GPU) is None


@pytest.mark.parametrize("most", [1, 2])
def test_a_sku_without_machines_has_its_whole_cap_as_headroom(most: int) -> None:
    world = World(catalogue(sku("gpu", max_machines=most)))
    world.queue(1, 2, 3)
    assert [launch.count for launch in world.intents(Launch)] == [most]


def test_a_partly_refilled_launch_rate_shortens_the_wait() -> None:
    rates = {EAST: LaunchRate(Rate(1, 0.5))}
    world = World(dataclasses.replace(catalogue(), launch_rates=rates))
    world.queue(1)
    world.carry_out()
    world.now += 1.0
    world.queue(2, 3)
    assert world.plan().again_at == pytest.approx(world.now + 1.0)


def test_an_unsent_launch_request_returns_its_tokens_once() -> None:
    rates = {EAST: LaunchRate(Rate(3, 0.5), Rate(10, 0.5))}
    world = World(dataclasses.replace(catalogue(), launch_rates=rates))
    for name in ("a", "b", "c"):
        world.record(2, name)
    assert world.fleet().launch_tokens == {EAST: LaunchTokens(0.0, 4.0)}
    world.do(e.LaunchRequestCancelled, LaunchRequestId("a"), "its job went away")
    assert world.fleet().launch_tokens == {EAST: LaunchTokens(1.0, 6.0)}


def test_repeats_share_the_request_rate_and_use_no_machine_rate() -> None:
    rates = {EAST: LaunchRate(Rate(3, 0.001), Rate(2, 0.001))}
    world = World(dataclasses.replace(catalogue(), launch_rates=rates))
    world.queue(1)
    world.send(1)
    world.do(e.LaunchOutcomeUnknown, LaunchRequestId("c"), "timed out")
    world.now += 5.0
    world.queue(2)
    assert [type(intent) for intent in world.plan().intents] == [ResendLaunchRequest, Launch]


def test_a_repeat_may_use_the_last_launch_token() -> None:
    world = World(dataclasses.replace(catalogue(), launch_rates={EAST: LaunchRate(Rate(2, 0.001))}))
    world.send(1)
    world.do(e.LaunchOutcomeUnknown, LaunchRequestId("c"), "timed out")
    world.now = START + 5.0
    world.state.launch_levels[EAST] = (LaunchTokens(1.0), world.now)
    assert world.intents(ResendLaunchRequest) == [ResendLaunchRequest(LaunchRequestId("c"))]
