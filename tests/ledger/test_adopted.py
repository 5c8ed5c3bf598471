"""Machines that only a listing shows, and what the listing says about them."""

import dataclasses
from typing import Any

from autoscaler.model import events as e
from autoscaler.model.identifiers import LaunchRequestId
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.machines.machine import Machine, MachineState
from tests.ledger.builders import START, World, listed
from tests.planner.fleets import EAST, launched


def shown_as(machine: Machine) -> tuple[Any, ...]:
    """Return the listed machine."""
    return (
        machine.placement.provider_id,
        machine.provider,
        machine.launch_request,
        machine.placement.instance_type,
        machine.placement.zone,
        machine.placement.capacity_type,
        machine.placement.image,
        machine.placement.launch_time,
    )


def test_a_listing_fills_the_slot_of_a_machine_whose_answer_was_lost() -> None:
    world = World()
    world.send(1)
    world.do(e.LaunchOutcomeUnknown, LaunchRequestId("c"), "timed out")
    world.lists(listed("i-1", zone="b", launch_time="t1"))
    bound = world.machine("c0")
    assert bound.state is MachineState.LAUNCHED
    assert shown_as(bound) == ("i-1", EAST, "c", "g5.xlarge", "b", "on-demand", "ami-1", "t1")


def test_a_listing_adds_a_machine_of_an_unknown_launch_request() -> None:
    world = World()
    world.now += 5.0
    world.lists(listed("i-1", call="elsewhere", zone="b", launch_time="t1"))
    found = world.machine("x-i-1")
    assert (found.since, found.created_at, found.slot) == (START + 5.0, START + 5.0, -1)
    assert shown_as(found) == (
        "i-1",
        EAST,
        "elsewhere",
        "g5.xlarge",
        "b",
        "on-demand",
        "ami-1",
        "t1",
    )


def test_listings_before_the_launch_do_not_count_towards_a_lost_machine() -> None:
    world = World()
    world.send(1)
    world.now += 1.0
    world.lists()
    world.answer("c", "i-1")
    world.now += 60.0
    world.lists()
    assert world.machine("c0").state is MachineState.LAUNCHED
    world.now += 60.0
    world.lists()
    assert world.machine("c0").state is MachineState.LOST


def ended(machine: str, message: str = "words") -> e.ListedMachine:
    """A machine that its provider terminated for lack of capacity."""
    return dataclasses.replace(
        listed(machine, terminated=True, reason=f"Server.Code: {message}"),
        failure=FailureClass.CAPACITY,
    )


def test_a_terminated_machine_in_many_listings_counts_as_one_failure() -> None:
    world = World()
    world.launch(1)
    world.lists(ended("i-c0"))
    held = dict(world.state.cooldowns)
    assert [hold.failures for hold in held.values() if hold.until > world.now] == [1]
    for _ in range(10):
        world.now += 360.0
        world.lists(ended("i-c0"))
    assert world.state.cooldowns == held


def test_a_machine_that_terminates_during_a_hold_does_not_extend_it() -> None:
    world = World()
    world.launch(2)
    world.lists(ended("i-c0"), world.listed("c1"))
    held = dict(world.state.cooldowns)
    world.now += 179.9
    world.lists(ended("i-c0"), ended("i-c1"))
    assert world.state.cooldowns == held


def test_the_providers_reason_for_a_termination_is_reported_unchanged() -> None:
    world = World()
    world.launch(1)
    world.lists(ended("i-c0", "no capacity: try later"))
    reasons = [hold.reason for hold in world.state.cooldowns.values() if hold.until > world.now]
    assert reasons == ["Server.Code: no capacity: try later"]


def test_a_list_has_the_image_that_the_answer_omitted() -> None:
    world = World()
    world.send(1)
    given = dataclasses.replace(launched("i-1"), image="", launch_time="")
    world.do(e.LaunchRequestAnswered, LaunchRequestId("c"), (given,), ())
    assert (world.machine("c0").placement.image, world.machine("c0").placement.launch_time) == (
        "",
        "",
    )
    world.lists(listed("i-1", launch_time="t1"))
    assert (world.machine("c0").placement.image, world.machine("c0").placement.launch_time) == (
        "ami-1",
        "t1",
    )
