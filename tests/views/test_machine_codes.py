"""A machine's view has the reason code beside the reason."""

from autoscaler.model import events as e
from autoscaler.model.identifiers import MachineId
from autoscaler.model.machines.machine import TerminationReason
from autoscaler.views.machines import view_of
from tests.ledger.builders import World

C0 = MachineId("c0")


def test_the_code_is_that_of_the_failure_and_then_that_of_the_end() -> None:
    world = World()
    world.launch(1)
    world.boot("c0")
    assert view_of(world.fleet(), world.machine("c0")).code == ""
    world.do(e.HealthChecksReported, C0, False, "gpu_count: 7 of 8")
    view = view_of(world.fleet(), world.machine("c0"))
    assert (view.code, view.reason) == ("health_check", "gpu_count: 7 of 8")
    world.do(e.TerminationRequested, C0, TerminationReason.FAILED, view.reason)
    view = view_of(world.fleet(), world.machine("c0"))
    assert (view.code, view.failure, view.reason) == (
        "failed",
        "health_check",
        "gpu_count: 7 of 8",
    )
