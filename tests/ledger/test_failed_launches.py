"""Which launches of a SKU failed, and why, as the history keeps it beside the history of the records."""

from autoscaler.model import changes
from autoscaler.model import events as e
from autoscaler.model.identifiers import LaunchRequestId, MachineId
from autoscaler.model.machines.failures import FailureClass
from tests.ledger.builders import World, failure


def failed(world: World) -> list[tuple[str, str, str, str, str]]:
    """Return the new failed launches: SKU, request, where, code and words."""
    rows = world.ledger.take_changes().history
    found = [changes.failed_launch_of(row) for row in rows if row.kind == changes.FAILED_LAUNCH]
    return [(one.sku, one.launch_request, one.where, one.code, one.message) for one in found]


def test_each_refused_offering_of_an_answer_is_kept_once_with_the_words_of_the_provider() -> None:
    world = World()
    world.send(2)
    (key, *_) = world.keys()
    no_capacity = failure(FailureClass.CAPACITY, offering=key)
    world.answer("c", failures=[no_capacity, no_capacity, failure(FailureClass.QUOTA)])
    assert failed(world) == [
        ("gpu", "c", key, "capacity", "Code: words"),
        ("gpu", "c", "all offerings at east", "quota", "Code: words"),
    ]


def test_a_launch_that_worked_is_no_failed_launch() -> None:
    world = World()
    world.launch(2)
    assert failed(world) == []


def test_an_answer_without_machines_and_reasons_is_kept() -> None:
    world = World()
    world.send(1)
    world.answer("c")
    ((*_, code, message),) = failed(world)
    assert (code, message) == (
        "capacity",
        "Empty: the provider launched no machine and gave no reason",
    )


def test_a_machine_that_did_not_become_ready_is_kept() -> None:
    world = World()
    world.launch(1)
    world.boot("c0")
    world.do(e.HealthChecksReported, MachineId("c0"), False, "no GPU")
    assert failed(world) == [("gpu", "c", "machine c0", "health_check", "health checks: no GPU")]


def test_a_request_that_was_never_answered_is_kept_when_it_is_written_off() -> None:
    world = World()
    world.send(1)
    world.do(e.LaunchOutcomeUnknown, LaunchRequestId("c"), "timed out")
    world.do(e.LaunchRequestSent, LaunchRequestId("c"))
    world.do(e.LaunchOutcomeUnknown, LaunchRequestId("c"), "timed out")
    assert failed(world) == []
    for _ in range(2):
        world.now += 61.0
        world.lists()
    assert failed(world) == [
        ("gpu", "c", "all offerings at east", "unknown", "NoAnswer: timed out")
    ]
