"""Which machines count as supply: known booting machines, and none that is being terminated."""

from autoscaler.model import events as e
from autoscaler.model.identifiers import LaunchRequestId
from autoscaler.model.plan import Launch, Terminate
from tests.ledger.builders import START, World, listed


def launched(world: World) -> int:
    return sum(launch.count for launch in world.intents(Launch))


def test_a_machine_that_misses_its_boot_deadline_is_not_supply() -> None:
    world = World()
    world.queue(1)
    world.launch(1)
    assert world.plan().intents == ()
    world.now = START + 900
    assert [type(intent) for intent in world.plan().intents] == [Terminate, Launch]


def test_of_an_unanswered_launch_request_only_found_machines_are_supply() -> None:
    world = World()
    world.queue(1, 2)
    world.send(2)
    world.do(e.LaunchOutcomeUnknown, LaunchRequestId("c"), "timed out")
    world.now = START + 599
    world.lists(listed("i-1"))
    assert launched(world) == 0
    world.now = START + 600
    assert launched(world) == 1


def test_after_a_restart_machines_that_were_ready_count_with_those_that_boot() -> None:
    world = World()
    world.make_ready(2)
    world.boot(*world.launch(1, "d"))
    world.queue(1, 2, 3)
    world.restart(30.0)
    assert launched(world) == 0
    world.queue(4)
    assert launched(world) == 1
