"""A provider's launch rate: a burst of requests, then so many a second; waiting machines share the next."""

import dataclasses

import pytest

from autoscaler.model import events as e
from autoscaler.model.catalogue import CapacityType, Catalogue, LaunchRate, LaunchTokens, Rate
from autoscaler.model.identifiers import LaunchRequestId
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.plan import CancelLaunchRequest, Launch, ResendLaunchRequest
from tests.ledger.builders import START, World, failure
from tests.planner.fleets import EAST, catalogue, offering, sku

REASON = "the launch rate of east is used up for a moment"


def limited(rate: Rate, *skus: str, machines: Rate | None = None) -> Catalogue:
    known = catalogue(*(sku(name) for name in skus or ("gpu",)))
    return dataclasses.replace(known, launch_rates={EAST: LaunchRate(rate, machines)})


def sizes(world: World) -> list[tuple[str, int]]:
    return [(launch.sku, launch.count) for launch in world.intents(Launch)]


def calls(world: World) -> float:
    return world.fleet().launch_tokens[EAST].calls


def queue_one_of_each(world: World, *skus: str) -> None:
    for number, name in enumerate(skus, start=len(world.state.jobs) + 1):
        world.queue(number, labels=(name,))
        world.now += 0.01


def test_if_launch_requests_are_scarce_the_oldest_jobs_go_first() -> None:
    world = World(limited(Rate(2, 0.5), "a", "b", "c"))
    queue_one_of_each(world, "c", "b", "a")
    assert sizes(world) == [("c", 1), ("b", 1)]
    ((demand, (run,)),) = [
        (demand, runs) for demand, runs in world.plan().waiting.items() if runs[0].blocked
    ]
    assert (demand.skus[0], run.message) == ("a", REASON)


def test_no_request_is_larger_than_its_provider_accepts() -> None:
    known = dataclasses.replace(limited(Rate(9, 0.5)), largest_requests={EAST: 3})
    world = World(known)
    queue_one_of_each(world, *["gpu"] * 7)
    assert sizes(world) == [("gpu", 3), ("gpu", 3), ("gpu", 1)]
    world.carry_out()
    assert calls(world) == pytest.approx(9 - 3, abs=0.1)


def test_a_provider_that_takes_one_machine_in_a_request_counts_each_as_a_request() -> None:
    world = World(dataclasses.replace(limited(Rate(2, 0.5)), largest_requests={EAST: 1}))
    queue_one_of_each(world, *["gpu"] * 3)
    assert sizes(world) == [("gpu", 1), ("gpu", 1)]
    ((_, runs),) = world.plan().waiting.items()
    assert [run.message for run in runs if run.blocked] == [REASON]


def test_waiting_machines_of_a_sku_share_one_launch_request() -> None:
    world = World(limited(Rate(1, 0.5), "a", "b"))
    queue_one_of_each(world, "a", "b", "b", "a", "b")
    assert sizes(world) == [("a", 2)]
    world.carry_out()
    assert world.plan().intents == ()
    queue_one_of_each(world, "a", "b")
    again_at = world.plan().again_at or 0.0
    assert again_at == pytest.approx(world.now + 2.0, abs=0.1)
    world.now = again_at
    assert sizes(world) == [("b", 4)]
    assert world.plan().again_at == pytest.approx(again_at + 2.0), "the other SKU's turn is next"


def test_a_plan_within_the_launch_rate_needs_no_later_plan() -> None:
    world = World(limited(Rate(1, 0.5)))
    assert world.plan().again_at is None
    world.queue(1)
    assert world.plan().again_at is None


@pytest.mark.case(
    "jobs that arrive together share a launch request, of up to 1,000 machines",
    topic="EC2's API",
    source="Karpenter pkg/batcher",
)
def test_a_launch_request_has_at_most_a_thousand_machines() -> None:
    world = World(limited(Rate(2, 0.5)))
    for job in range(1, 2102):
        world.queue(job)
    assert sizes(world) == [("gpu", 1000), ("gpu", 1000)]
    world.carry_out()
    world.now += 2.0
    assert sizes(world) == [("gpu", 101)]


def test_a_used_up_launch_rate_does_not_move_a_job_to_the_next_launch_option() -> None:
    kinds = (
        offering(capacity_type=CapacityType.SPOT, quota="G-spot"),
        offering(capacity_type=CapacityType.ON_DEMAND),
    )
    known = catalogue(sku("a"), sku("b", offerings=kinds))
    world = World(dataclasses.replace(known, launch_rates={EAST: LaunchRate(Rate(1, 0.5))}))
    queue_one_of_each(world, "a", "b")
    assert sizes(world) == [("a", 1)]


def unanswered(world: World, *names: str) -> None:
    for name in names:
        world.send(3, name)
        world.do(e.LaunchOutcomeUnknown, LaunchRequestId(name), "timed out")
    world.now += 60.0


def test_a_repeated_launch_request_counts_as_a_request_and_no_machines() -> None:
    world = World(limited(Rate(3, 0.001), machines=Rate(10, 0.001)))
    unanswered(world, "c")
    world.now = START
    world.do(e.LaunchRequestSent, LaunchRequestId("c"))
    assert world.fleet().launch_tokens == {EAST: LaunchTokens(1.0, 7.0)}


def test_repeats_use_launch_tokens_before_new_launch_requests() -> None:
    world = World(limited(Rate(5, 0.0001)))
    unanswered(world, "c", "d", "f")
    world.queue(*range(1, 30))
    made = world.carry_out()
    assert [type(intent) for intent in made.intents] == [ResendLaunchRequest, ResendLaunchRequest]
    assert made.again_at is not None
    assert world.plan().intents == ()


def test_a_launch_request_that_could_not_be_prepared_uses_no_launch_rate() -> None:
    world = World(limited(Rate(2, 0.001)))
    world.record(1)
    world.answer("c", failures=[failure(FailureClass.UNKNOWN)])
    assert calls(world) == 2.0


def test_a_launch_request_that_is_never_sent_uses_no_launch_rate() -> None:
    world = World(limited(Rate(1, 0.001)))
    world.queue(1, 2)
    world.carry_out()
    world.completes(1)
    made = world.carry_out()
    assert [type(intent) for intent in made.intents] == [CancelLaunchRequest, Launch]
    assert calls(world) == 0.0


def test_the_launch_rate_refills_with_time_up_to_the_burst() -> None:
    world = World(limited(Rate(3, 0.5)))
    for name in "cde":
        world.send(1, name)
    assert calls(world) == 0.0
    world.now += 3.0
    assert calls(world) == 1.5
    world.now += 100.0
    assert calls(world) == 3.0


def test_the_launch_rate_after_a_restart_has_only_what_the_downtime_refilled() -> None:
    world = World(limited(Rate(50, 5.0)))
    world.do(e.ControllerStarted, 2.0)
    assert calls(world) == 50.0, "nothing was ever sent"
    world.send(1)
    world.do(e.ControllerStarted, 2.0)
    assert calls(world) == 10.0


def test_a_provider_without_a_launch_rate_accepts_any_number_of_requests() -> None:
    world = World(catalogue(*(sku(f"s{n}") for n in range(200))))
    queue_one_of_each(world, *(f"s{n}" for n in range(200)))
    assert len(world.intents(Launch)) == 200
    world.carry_out()
    assert world.fleet().launch_tokens == {}


def test_a_provider_can_limit_machines_beside_launch_requests() -> None:
    world = World(limited(Rate(50, 5.0), machines=Rate(3, 0.25)))
    world.queue(*range(1, 6))
    assert sizes(world) == [("gpu", 3)]
    world.carry_out()
    assert world.fleet().launch_tokens == {EAST: LaunchTokens(49.0, 0.0)}
    assert world.plan().intents == ()
    assert world.plan().again_at == world.now + 4.0
    world.now += 4.0
    assert sizes(world) == [("gpu", 1)]


def test_a_launch_request_needs_the_rates_of_requests_and_of_machines() -> None:
    world = World(limited(Rate(1, 0.5), "a", "b", machines=Rate(10, 10.0)))
    queue_one_of_each(world, "a", "b")
    assert sizes(world) == [("a", 1)]
    assert world.plan().again_at == world.now + 2.0
