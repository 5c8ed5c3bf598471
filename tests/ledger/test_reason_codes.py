"""Every failed launch and every machine that ends has a reason code from a fixed list, once, in the history."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from autoscaler.model import events as e
from autoscaler.model.identifiers import LaunchRequestId, MachineId
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.machines.interruptions import NoticeKind
from autoscaler.model.machines.machine import ExitReason, MachineState, TerminationReason
from tests.ledger.builders import World, failure
from tests.planner.fleets import EAST

C0 = MachineId("c0")
IDLE, LIFETIME = TerminationReason.IDLE, TerminationReason.LIFETIME
SURPLUS = TerminationReason.SURPLUS


def codes(world: World, kind: str = "machine") -> list[tuple[str, str]]:
    """Return the events of the new rows that have a code, with it."""
    rows = world.ledger.take_changes().history
    return [(row.event, row.code) for row in rows if row.code and row.kind == kind]


def gone(world: World, seconds: float = 1.0) -> None:
    world.now += seconds
    world.lists(world.listed("c0", terminated=True))


def leaving(world: World) -> None:
    shown = replace(world.listed("c0"), leaving=True, reason="User initiated", failure=None)
    world.lists(shown, complete=False)


def runner(world: World) -> str:
    return world.assignment(world.make_ready(1)[0])


def decided(reason: TerminationReason) -> Callable[[World], None]:
    def play(world: World) -> None:
        world.make_ready(1)
        world.do(e.TerminationRequested, C0, reason, "words")
        gone(world)

    return play


def powers_off(world: World) -> None:
    runner(world)
    world.do(e.MachineExited, C0, "status 0", ExitReason.EXITED)
    gone(world)


def powers_off_unheard(world: World) -> None:
    """Its job completes while its agent cannot reach the controller."""
    name = runner(world)
    world.queue(1)
    world.starts(1, name)
    world.completes(1, runner_name=name)
    gone(world)


def is_shut_down(world: World) -> None:
    world.make_ready(1)
    leaving(world)
    gone(world)


def dies_at_work(world: World) -> None:
    name = runner(world)
    world.queue(1)
    world.starts(1, name)
    gone(world)


def is_interrupted(world: World) -> None:
    name = runner(world)
    world.queue(1)
    world.starts(1, name)
    notice = (EAST, world.listed("c0").provider_id, NoticeKind.SPOT_INTERRUPTION, world.now)
    world.do(e.MachineNoticed, *notice)
    gone(world)


def is_lost(world: World) -> None:
    runner(world)
    world.now += 1.0
    world.lists()
    world.now += 60.0
    world.lists()


def fails_its_health_checks(world: World) -> None:
    world.launch(1)
    world.boot("c0")
    world.do(e.HealthChecksReported, C0, False, "gpu_count: 7 of 8")
    world.do(e.TerminationRequested, C0, TerminationReason.FAILED, "gpu_count: 7 of 8")
    gone(world)


@pytest.mark.parametrize(
    ("play", "code"),
    [
        *[(decided(reason), reason) for reason in (IDLE, LIFETIME, SURPLUS)],
        (powers_off, "powered_off"),
        (powers_off_unheard, "powered_off"),
        (is_shut_down, "shut_down"),
        (dies_at_work, "shut_down"),
        (is_interrupted, "interrupted"),
        (is_lost, "lost"),
        (fails_its_health_checks, "failed"),
    ],
)
def test_the_end_of_a_machine_has_one_code(play: Callable[[World], None], code: str) -> None:
    world = World()
    play(world)
    ends = [said for event, said in codes(world) if event != "failed"]
    assert ends == [code]
    assert world.machine("c0").termination.reason == code
    assert world.machine("c0").state in (MachineState.TERMINATED, MachineState.LOST)


def test_a_machine_that_is_listed_again_after_it_was_lost_has_no_reason_to_end() -> None:
    world = World()
    runner(world)
    shown = world.listed("c0")
    for wait in (1.0, 60.0):
        world.now += wait
        world.lists()
    assert world.machine("c0").termination.reason is TerminationReason.LOST
    world.now += 1.0
    world.lists(shown)
    assert world.machine("c0").termination.reason is None


def test_the_failure_of_a_machine_has_its_class_as_code() -> None:
    world = World()
    fails_its_health_checks(world)
    assert codes(world)[0] == ("failed", "health_check")


OF_PROVIDERS = set(FailureClass) - {FailureClass.BOOT_DEADLINE, FailureClass.HEALTH_CHECK}


@pytest.mark.parametrize("known", sorted(OF_PROVIDERS))
def test_a_launch_that_the_provider_refuses_has_the_code_of_its_failure(
    known: FailureClass,
) -> None:
    world = World()
    world.send(2)
    world.answer("c", "i-1", failures=[failure(known)])
    rows = world.ledger.take_changes().history
    said = [(row.kind, row.event, row.code) for row in rows if row.code]
    assert said == [
        ("machine", "failed", known),
        ("failed_launch", "failed", known),
        ("launch_request", "answered", known),
    ]
    assert all(row.detail for row in rows if row.code)


def test_a_launch_without_an_answer_is_unknown_and_a_cancelled_one_is_no_failure() -> None:
    world = World()
    world.send(1)
    world.do(e.LaunchOutcomeUnknown, LaunchRequestId("c"), "timed out")
    world.do(e.LaunchRequestSent, LaunchRequestId("c"))
    world.do(e.LaunchOutcomeUnknown, LaunchRequestId("c"), "timed out")
    for _ in range(2):
        world.now += 61.0
        world.lists()
    assert codes(world, "launch_request") == [("written_off", "unknown")]
    world.record(1, "d")
    world.do(e.LaunchRequestCancelled, LaunchRequestId("d"), "its job went away")
    assert codes(world, "launch_request") == []
