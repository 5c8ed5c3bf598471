"""SIGTERM in a burst and a start after it, and a reload that restarts: nothing is lost or done twice.

In a laboratory of its own, whose clock is slower than that of the other stories. A machine that
reaches no controller for 15 minutes powers itself off (docs/agent.md), and a restart takes real
seconds: at 60 times real time, a busy host brings every machine past its 15 minutes.
"""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
import yaml

from autoscaler.model.machines.launch_requests import LaunchRequestState
from autoscaler.model.machines.machine import Machine, MachineState
from lab.ec2.instances import Instance
from lab.ec2.moto import MotoProcess
from lab.laboratory import LabFleet, Laboratory
from tests.lab.system.harness import (
    SKU_TAG,
    Operator,
    ec2_sku,
    job,
    log_lines,
    read_records,
    started,
    until,
    wrong_slots,
)
from tests.lab.system.pace import PATIENCE, yielding

pytestmark = pytest.mark.asyncio(loop_scope="module")

SKUS = {"burst": ec2_sku("g6.4xlarge"), "warm": ec2_sku("g4dn.4xlarge", idle={"min": 2})}
SCALE = 15.0
JOBS = 30


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lab(moto: MotoProcess) -> AsyncIterator[Laboratory]:
    fleet = LabFleet("acme", ("widgets",), SKUS, scale=yielding(SCALE), most_machines=150)
    async with Laboratory(fleet, moto) as laboratory:
        await laboratory.start_controller()
        yield laboratory


def _instances(lab: Laboratory, sku: str) -> list[Instance]:
    return [one for one in lab.ec2.instances if one.tags[SKU_TAG] == sku]


def _ready(lab: Laboratory) -> list[Machine]:
    return [one for one in read_records(lab).machines if one.state is MachineState.READY]


async def test_after_sigterm_requests_finish_and_none_is_carried_out_twice(
    lab: Laboratory,
) -> None:
    await until(lambda: len(_ready(lab)) == 2, PATIENCE, lab.controller.log_end)
    ready = {one.id for one in _ready(lab)}
    templates = lab.ec2.calls["CreateLaunchTemplate"]
    jobs = lab.github.push([job(f"burst-{n}", "burst", 30.0) for n in range(JOBS)])
    await until(
        lambda: lab.ec2.calls["CreateLaunchTemplate"] > templates, PATIENCE, lab.controller.log_end
    )
    assert await lab.controller.terminate() == 0
    calls = [call for call in read_records(lab).calls if call.sku == "burst"]
    assert sum(len(call.slots) for call in calls) == JOBS
    assert {call.state for call in calls} == {LaunchRequestState.SETTLED}
    assert len(_instances(lab, "burst")) == JOBS

    await lab.start_controller()
    await until(lambda: all(one.conclusion for one in jobs), PATIENCE, lab.controller.log_end)
    assert [(one.conclusion, len(one.starts)) for one in jobs] == [("success", 1)] * JOBS
    assert len(_instances(lab, "burst")) == JOBS
    assert len(_instances(lab, "warm")) == 2
    assert {one.id for one in _ready(lab)} == ready
    assert wrong_slots(lab) == []


async def test_a_reload_of_other_keys_restarts_the_controller_and_loses_nothing(
    lab: Laboratory,
) -> None:
    """Machines that run jobs, and those whose agents wait for one, go on with the same process."""
    await until(lambda: len(_ready(lab)) == 2, PATIENCE, lab.controller.log_end)
    ready = {one.id for one in _ready(lab)}
    jobs = lab.github.push([job(f"running-{n}", "burst", 120.0) for n in range(3)])
    await until(lambda: started(jobs), PATIENCE, lab.controller.log_end)
    earlier = {one.id for one in lab.ec2.instances}

    file = lab.folder / "fleet.yaml"
    fleet = yaml.safe_load(file.read_text())
    fleet["providers"]["lab"]["ec2"]["tags"] = {"team": "ci"}
    file.write_text(yaml.safe_dump(fleet, sort_keys=False))
    status, printed = await Operator(lab).says("reload")
    assert (status, printed.splitlines()[0]) == (0, "changed: providers.lab.ec2.tags.team")
    await until(
        lambda: log_lines(lab, "configuration_reloaded") != [], PATIENCE, lab.controller.log_end
    )
    (restarted,) = log_lines(lab, "controller_restarts")
    assert restarted["changed"] == ["providers.lab.ec2.tags.team"]

    jobs += lab.github.push([job(f"later-{n}", "burst", 30.0) for n in range(3)])
    await until(lambda: all(one.conclusion for one in jobs), PATIENCE, lab.controller.log_end)
    assert [(one.conclusion, len(one.starts)) for one in jobs] == [("success", 1)] * 6
    new = [one for one in lab.ec2.instances if one.id not in earlier]
    assert new
    assert all(one.tags["team"] == "ci" for one in new)
    assert {one.id for one in _ready(lab)} == ready
    assert wrong_slots(lab) == []
    assert lab.wrong_jobs() == []
    status, printed = await Operator(lab).says("history", "all")
    assert (status, "1 change: providers.lab.ec2.tags.team" in printed) == (0, True)
