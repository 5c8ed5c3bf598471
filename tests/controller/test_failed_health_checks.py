"""A machine whose health checks fail gets no job, and the operator reads which check failed."""

import pytest
from structlog.testing import capture_logs

from autoscaler.controller.ports.bootstrap import BootstrapRefusedError
from autoscaler.model.machines.machine import MachineState
from tests.controller.agents import launched
from tests.controller.controllers import World
from tests.controller.virtual_time import on_virtual_time

DETAIL = "gpu_count: 7 found, and 8 wanted; gpu_xid: XID 79 on 0000:cb:00"


@pytest.mark.case(
    "a machine's GPUs fail their checks: the log, a metric and the history name the check",
    topic="Accelerators",
    source="NVIDIA/NVSentinel#155",
)
@on_virtual_time
async def test_an_operator_reads_which_check_failed() -> None:
    world = World()
    controller, (agent,) = await launched(world)
    await agent.attest()
    with capture_logs() as logs:
        await agent.health_checks(passed=False, detail=DETAIL)
    (line,) = (one for one in logs if one["event"] == "health_checks_failed")
    machine = controller.only_machine()
    assert (line["machine"], line["sku"], line["detail"]) == (machine.id, "gpu", DETAIL)
    assert (line["provider_id"], line["image"]) == (
        machine.placement.provider_id,
        machine.placement.image,
    )
    assert (line["zone"], line["instance_type"]) == (
        machine.placement.zone,
        machine.placement.instance_type,
    )
    assert machine.placement.zone
    assert machine.placement.instance_type
    image = machine.placement.image
    assert image
    assert ("health_check_failed", "gpu", "gpu_count", image) in world.telemetry.said
    rows = await world.store.history("machine", machine.id)
    assert [row.detail for row in rows if row.event == MachineState.FAILED] == [DETAIL]
    with pytest.raises(BootstrapRefusedError):
        await agent.take_assignment()
    await controller.turn()
    assert controller.state.machines[machine.id].work.runner is None


@on_virtual_time
async def test_checks_that_pass_are_not_reported() -> None:
    world = World()
    _, (agent,) = await launched(world)
    await agent.attest()
    with capture_logs() as logs:
        await agent.health_checks()
    assert not [one for one in logs if one["event"] == "health_checks_failed"]
    assert not [said for said in world.telemetry.said if said[0] == "health_check_failed"]
