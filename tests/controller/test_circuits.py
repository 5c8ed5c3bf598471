"""Why a runner left reaches the operator: log, history, metric and the machine's record."""

import pytest
from structlog.testing import capture_logs

from autoscaler.controller.circuits import Circuits
from autoscaler.model.jobs import JobState
from autoscaler.model.machines import ExitReason
from tests.controller.agents import launched, say
from tests.controller.controllers import World
from tests.controller.virtual_time import on_virtual_time

REFUSED = (
    "GitHub refuses the runner's version: An error occurred: Runner version v2.320.0 is deprecated "
    "and cannot receive messages."
)


@on_virtual_time
async def test_an_operator_reads_why_a_runner_left_without_a_job() -> None:
    world = World()
    controller, (agent,) = await launched(world)
    Circuits(controller.journal)
    await agent.hello()
    await agent.gate(version="2.320.0")
    await controller.turn()
    granted = await agent.take_grant()
    await agent.acknowledge(granted.runner)
    with capture_logs() as logs:
        await agent.exit(REFUSED, ExitReason.VERSION_DEPRECATED)
    (line,) = (one for one in logs if one["event"] == "runner_exited_without_job")
    machine = controller.only_machine()
    assert (line["machine"], line["image"], line["sku"]) == (machine.id, machine.image, "gpu")
    assert (line["runner_version"], line["runner"]) == ("2.320.0", granted.runner)
    assert (line["reason"], line["detail"]) == ("version_deprecated", REFUSED)
    assert ("runner_exited", "gpu", "version_deprecated") in world.telemetry.said
    rows = await world.store.history("machine", machine.id)
    assert [row.detail for row in rows if row.event == "exited"] == [REFUSED]
    assert (machine.runner_version, machine.exit_reason) == ("2.320.0", "version_deprecated")


@pytest.mark.parametrize("why", ["unused", "seat_closed", "after a job"])
def test_what_is_expected_is_counted_and_not_logged(why: str) -> None:
    @on_virtual_time
    async def scenario() -> None:
        world = World()
        controller, (agent,) = await launched(world)
        Circuits(controller.journal)
        granted = await agent.start_runner()
        if why == "after a job":
            await say(controller, 1, JobState.IN_PROGRESS, granted.runner)
            await controller.turn()
        reason = ExitReason.EXITED if why == "after a job" else ExitReason(why)
        with capture_logs() as logs:
            await agent.exit("it left", reason)
        assert not [one for one in logs if one["event"] == "runner_exited_without_job"]
        assert ("runner_exited", "gpu", reason) in world.telemetry.said

    scenario()
