"""Quotas in a whole laboratory: read from AWS, kept in the store, and doing without.

One laboratory for all stories, one after the other.
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from autoscaler.model.machines.failures import FailureClass
from lab.ec2.moto import MotoProcess
from lab.laboratory import LabFleet, Laboratory
from tests.lab.system.harness import at_rest, job, log_lines, read_records, shows, until
from tests.lab.system.pace import PATIENCE, yielding

pytestmark = pytest.mark.asyncio(loop_scope="module")

INF_ON_DEMAND = "L-1945791B"
VCPUS = 16  # two inf1.2xlarge
SKUS: dict[str, Any] = {"inf": {"on": [{"provider": "lab", "instance_types": ["inf1.2xlarge"]}]}}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lab(moto: MotoProcess) -> AsyncIterator[Laboratory]:
    fleet = LabFleet("acme", ("widgets",), SKUS, scale=yielding(60.0), most_machines=20)
    async with Laboratory(fleet, moto) as laboratory:
        laboratory.ec2.quotas.set(INF_ON_DEMAND, VCPUS)
        await laboratory.start_controller()
        yield laboratory


async def quota_from(lab: Laboratory, source: str) -> None:
    """Return once the one quota comes from a source."""
    await shows(lab, {f'autoscaler_quotas{{provider="lab",source="{source}"}}': 1}, PATIENCE)


async def run_jobs(lab: Laboratory, name: str) -> None:
    """Run more jobs than the quota has room for at a time."""
    pushed = lab.github.push([job(f"{name}-{n}", "inf", 120.0) for n in range(4)])
    await until(lambda: all(one.conclusion for one in pushed), PATIENCE, lab.controller.log_end)
    assert {(one.conclusion, len(one.starts)) for one in pushed} == {("success", 1)}


def refused_calls(lab: Laboratory) -> list[str]:
    calls = read_records(lab).calls
    return [call.reason for call in calls if call.failure is FailureClass.QUOTA]


async def test_launches_stay_within_a_quota_that_was_read(lab: Laboratory) -> None:
    await quota_from(lab, "api")
    await run_jobs(lab, "first")
    assert refused_calls(lab) == []


@pytest.mark.case(
    "Service Quotas refuses or does not answer after a restart: the last values are used",
    topic="EC2's API",
    source="Service Quotas: ListServiceQuotas",
)
async def test_after_a_restart_without_permission_launches_stay_within_the_stored_quota(
    lab: Laboratory,
) -> None:
    assert await lab.controller.terminate() == 0
    lab.ec2.quotas.denied = True
    await lab.start_controller()
    await quota_from(lab, "cache")
    await run_jobs(lab, "second")
    assert refused_calls(lab) == []
    (refused,) = log_lines(lab, "quotas_not_read")
    assert "AccessDeniedException" in refused["error"]
    assert "docs/ec2.md#permissions" in refused["hint"]
    assert refused["in_use"] == {"cache": 1}
    assert refused["age_seconds"] > 0
    await at_rest(lab, PATIENCE)
    assert lab.wrong_jobs() == []
