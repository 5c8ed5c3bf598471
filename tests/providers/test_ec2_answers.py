"""What EC2's answers become without a server: launches, their failures, and the metered calls."""

from collections.abc import Mapping
from typing import Any

from autoscaler.controller.ports.telemetry import Telemetry
from autoscaler.model.events import LaunchFailure
from autoscaler.model.identifiers import ProviderName, Seconds
from autoscaler.model.machines.failures import FailureClass
from autoscaler.providers.ec2.launching.answers import launch_answer
from autoscaler.providers.ec2.launching.templates import Resources
from autoscaler.providers.ec2.worker.rows import FleetErrorRow, FleetInstanceRow
from autoscaler.providers.ec2.worker.throttle import MeteredApi, Throttle
from tests.providers.doubles import ManualClock, ScriptedApi
from tests.providers.ec2_keys import with_keys
from tests.providers.test_ec2_requests import SETTINGS

EAST = ProviderName("east")
MACHINES = [list(FleetInstanceRow(f"i-{n}", "g5.xlarge", "us-east-1a", "spot")) for n in range(3)]


def fleet(machines: int) -> dict[str, Any]:
    target = {"TotalTargetCapacity": machines, "DefaultTargetCapacityType": "spot"}
    return {"TargetCapacitySpecification": target}


def failures(machines: int, *errors: FleetErrorRow) -> tuple[LaunchFailure, ...]:
    """Return the failures of a request for so many machines, of which EC2 launched three."""
    answer = MACHINES, [list(one) for one in errors]
    return launch_answer(EAST, fleet(machines), answer, "ami-1").failures


def test_machines_missing_without_an_error_count_as_failures() -> None:
    assert failures(3) == ()
    (missing,) = failures(5)
    assert (missing.failure, missing.code) == (FailureClass.UNKNOWN, "Unfulfilled")
    assert missing.message == "EC2 launched 2 machines fewer than requested, and gave no reason"


def test_a_failure_without_an_offering_keeps_ec2s_code_and_message() -> None:
    full = FleetErrorRow("VcpuLimitExceeded", "too many", "", "")
    assert failures(5, full) == (
        LaunchFailure(FailureClass.QUOTA, "VcpuLimitExceeded", "too many", None, None),
    )


class Durations(Telemetry):
    """Keeps how long calls took."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, Seconds]] = []

    def provider_call(
        self, provider: ProviderName, operation: str, outcome: str, duration: Seconds
    ) -> None:
        self.seen.append((operation, outcome, duration))


async def test_the_duration_of_a_call_excludes_the_wait_before_it() -> None:
    clock, durations = ManualClock(), Durations()

    def answer(operation: str, arguments: Mapping[str, Any]) -> str:
        clock.time += 0.25
        return operation

    api = MeteredApi(ScriptedApi(answer), EAST, durations, clock, Throttle(clock))
    for _ in range(12):
        assert await api.call("RunInstances", {}) == "RunInstances"
    assert clock.slept != []
    assert durations.seen == [("RunInstances", "ok", 0.25)] * 12


async def test_subnets_are_read_again_after_one_was_full() -> None:
    free = {"subnet-a": 9, "subnet-b": 5}
    api = ScriptedApi(lambda *_: [[name, "us-east-1a", left] for name, left in free.items()])
    settings = with_keys(SETTINGS, subnets=tuple(free))
    resources = Resources(settings, api, ManualClock())
    assert resources.offered_types == {}
    assert resources.image_of("lt-of-another-process") == ""
    for _ in range(2):
        assert await resources.subnets() == {"us-east-1a": "subnet-a"}
    assert len(api.calls) == 1
    resources.note_full("subnet-a")
    assert await resources.subnets() == {"us-east-1a": "subnet-b"}
    assert len(api.calls) == 2
