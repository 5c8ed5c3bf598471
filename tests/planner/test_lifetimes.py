"""When a granted machine is ended for its time, and what else is due that stands in no deadline."""

import dataclasses

from autoscaler.model import events as e
from autoscaler.model.identifiers import CallId, MachineId
from autoscaler.model.machines import EndGround, MachineState
from autoscaler.model.plan import End, Examine, RepeatCall
from tests.ledger.builders import START, World
from tests.planner.fleets import catalogue, sku

C0 = MachineId("c0")


def test_a_machine_that_does_not_fetch_its_grant_is_ended() -> None:
    world = World()
    world.queue(1)
    (machine,) = world.park()
    world.mint(machine)
    world.now = START + 300
    assert world.intents(End) == [End(C0, EndGround.DEADLINE, "it does not fetch its grant")]


def test_every_sku_has_its_own_lifetime() -> None:
    world = World(catalogue(dataclasses.replace(sku(), lifetime=600.0)))
    world.ready()
    world.now = START + 599.9
    assert world.intents(End) == []
    world.now = START + 600
    assert world.intents(End) == [End(C0, EndGround.LIFETIME, "granted 600 s ago")]


def test_a_machine_that_was_lost_and_found_has_the_lifetime_of_its_grant() -> None:
    world = World()
    world.ready()
    shown = world.listed("c0")
    for _ in range(2):
        world.now += 60.0
        world.lists()
    world.now += 60.0
    world.lists(shown)
    assert world.machine("c0").state is MachineState.GRANTED
    world.now = START + 86_400
    assert world.intents(End) == [End(C0, EndGround.LIFETIME, "granted 86400 s ago")]
    assert world.intents(Examine) == []


def test_a_parked_machine_of_a_sku_that_left_the_configuration_is_ended() -> None:
    world = World()
    world.park()
    world.ledger.replace_catalogue(catalogue(sku("cpu")))
    assert world.intents(End) == [
        End(C0, EndGround.SURPLUS, "its SKU is not in the configuration any more")
    ]


def test_a_call_that_is_under_way_keeps_no_other_from_being_repeated() -> None:
    world = World()
    world.send(1, "a")
    world.send(1, "b")
    world.do(e.CallOutcomeUnknown, CallId("b"), "timed out")
    world.now += 5.0
    assert world.intents(RepeatCall) == [RepeatCall(CallId("b"))]


def test_a_granted_machine_of_a_sku_that_left_the_configuration_has_a_day() -> None:
    world = World()
    world.ready()
    world.ledger.replace_catalogue(catalogue(sku("cpu")))
    world.now = START + 900
    assert world.plan().intents == (Examine(C0),)
    world.now = START + 86_400
    assert world.intents(End) == [End(C0, EndGround.LIFETIME, "granted 86400 s ago")]
