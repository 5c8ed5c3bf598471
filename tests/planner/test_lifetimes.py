"""When the lifetime of an assigned machine ends, and other terminations without a deadline."""

import dataclasses

import pytest

from autoscaler.model import events as e
from autoscaler.model.identifiers import LaunchRequestId, MachineId
from autoscaler.model.machines.machine import MachineState, TerminationReason
from autoscaler.model.plan import ReadRunner, ResendLaunchRequest, Terminate
from tests.ledger.builders import START, World
from tests.planner.fleets import catalogue, sku

C0 = MachineId("c0")


def test_a_machine_that_does_not_fetch_its_assignment_is_terminated() -> None:
    world = World()
    world.queue(1)
    (machine,) = world.make_ready()
    world.register(machine)
    world.now = START + 300
    assert world.intents(Terminate) == [
        Terminate(C0, TerminationReason.DEADLINE, "it did not fetch its assignment in time")
    ]


@pytest.mark.case(
    "jobs of up to five days: each SKU has its own lifetime",
    topic="Runner and listener",
    source="GitHub: Actions limits",
)
def test_every_sku_has_its_own_lifetime() -> None:
    world = World(catalogue(dataclasses.replace(sku(), lifetime=600.0)))
    world.ready()
    world.now = START + 599.9
    assert world.intents(Terminate) == []
    world.now = START + 600
    assert world.intents(Terminate) == [
        Terminate(C0, TerminationReason.LIFETIME, "assigned 600 s ago")
    ]


def test_a_lost_machine_that_is_listed_again_keeps_the_lifetime_of_its_assignment() -> None:
    world = World()
    world.ready()
    shown = world.listed("c0")
    for _ in range(2):
        world.now += 60.0
        world.lists()
    world.now += 60.0
    world.lists(shown)
    assert world.machine("c0").state is MachineState.ASSIGNED
    world.now = START + 86_400
    assert world.intents(Terminate) == [
        Terminate(C0, TerminationReason.LIFETIME, "assigned 86400 s ago")
    ]
    assert world.intents(ReadRunner) == []


@pytest.mark.case(
    "a SKU is removed from the configuration while its machines exist",
    topic="Operators' files",
    source="ARC#4168",
)
def test_a_ready_machine_of_a_sku_that_left_the_configuration_is_terminated() -> None:
    world = World()
    world.make_ready()
    world.ledger.replace_catalogue(catalogue(sku("cpu")))
    assert world.intents(Terminate) == [
        Terminate(C0, TerminationReason.SURPLUS, "its SKU is no longer configured")
    ]


def test_a_launch_request_in_flight_does_not_delay_the_repeat_of_another() -> None:
    world = World()
    world.send(1, "a")
    world.send(1, "b")
    world.do(e.LaunchOutcomeUnknown, LaunchRequestId("b"), "timed out")
    world.now += 5.0
    assert world.intents(ResendLaunchRequest) == [ResendLaunchRequest(LaunchRequestId("b"))]


def test_an_assigned_machine_of_a_sku_that_left_the_configuration_has_a_day() -> None:
    world = World()
    world.ready()
    world.ledger.replace_catalogue(catalogue(sku("cpu")))
    world.now = START + 900
    assert world.plan().intents == (ReadRunner(C0),)
    world.now = START + 86_400
    assert world.intents(Terminate) == [
        Terminate(C0, TerminationReason.LIFETIME, "assigned 86400 s ago")
    ]
