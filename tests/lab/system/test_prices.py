"""Prices in a whole laboratory: read from AWS, kept in the store, and doing without.

One laboratory for all stories, one after the other.
"""

import math
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from typing import Any

import pytest
import pytest_asyncio

from autoscaler.model.machines.machine import MachineState
from lab.ec2.moto import MotoProcess
from lab.laboratory import LabFleet, Laboratory
from tests.lab.system.harness import at_rest, job, log_lines, read_records, shows, until
from tests.lab.system.pace import PATIENCE, yielding

pytestmark = pytest.mark.asyncio(loop_scope="module")

ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")
ON_DEMAND, SPOT = 2.0, 0.4
SKUS: dict[str, Any] = {
    "gpu": {"on": [{"provider": "lab", "instance_types": ["g5.xlarge"], "capacity": ["spot"]}]}
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lab(moto: MotoProcess) -> AsyncIterator[Laboratory]:
    fleet = LabFleet("acme", ("widgets",), SKUS, scale=yielding(60.0), most_machines=20)
    async with Laboratory(fleet, moto) as laboratory:
        laboratory.ec2.prices.set_on_demand("g5.xlarge", ON_DEMAND)
        for zone in ZONES:
            laboratory.ec2.prices.set_spot("g5.xlarge", zone, SPOT)
        await laboratory.start_controller()
        yield laboratory


async def prices(lab: Laboratory, capacity_type: str, source: str, number: int) -> None:
    """Return once so many prices of a kind come from a source."""
    labels = f'{{capacity_type="{capacity_type}",provider="lab",source="{source}"}}'
    await shows(lab, {f"autoscaler_prices{labels}": number}, PATIENCE)


async def costs(lab: Laboratory, dollars_per_hour: float) -> None:
    """Return once the fleet costs so much."""
    wanted = pytest.approx(dollars_per_hour)
    await shows(lab, {"autoscaler_cost_dollars_per_hour": wanted}, PATIENCE)


async def run_job(lab: Laboratory, name: str) -> None:
    (pushed,) = lab.github.push([job(name, "gpu", 120.0)])
    await until(lambda: bool(pushed.conclusion), PATIENCE, lab.controller.log_end)
    assert (pushed.conclusion, len(pushed.starts)) == ("success", 1)


@pytest.mark.case(
    "prices differ by region and change: the controller reads them from AWS, and the store keeps "
    "them",
    topic="EC2's API",
    source="Karpenter's pricing provider; AWS: GetProducts",
)
async def test_prices_are_read_stored_and_used(lab: Laboratory) -> None:
    await prices(lab, "on-demand", "api", 1)
    await prices(lab, "spot", "api", len(ZONES))
    (pushed,) = lab.github.push([job("first", "gpu", math.inf)])
    await until(lambda: bool(pushed.starts), PATIENCE, lab.controller.log_end)
    await costs(lab, SPOT)
    (machine,) = (one for one in read_records(lab).machines if one.state is MachineState.ASSIGNED)
    assert machine.placement.dollars_per_hour == ON_DEMAND, "in the limit"
    lab.github.end(pushed)
    await until(lambda: bool(pushed.conclusion), PATIENCE, lab.controller.log_end)


async def test_after_a_restart_stored_prices_are_used_and_not_read_again(
    lab: Laboratory,
) -> None:
    asked = lab.ec2.calls["pricing"]
    assert asked > 0
    await lab.controller.kill()
    await lab.start_controller()
    await prices(lab, "on-demand", "cache", 1)
    await run_job(lab, "second")
    assert lab.ec2.calls["pricing"] == asked


@pytest.mark.case(
    "the Pricing API refuses (a service control policy, no permission): nothing waits for it",
    topic="EC2's API",
    source="Karpenter#3522; Karpenter#2604",
)
async def test_without_permission_to_read_prices_the_stored_ones_are_used_and_jobs_run(
    lab: Laboratory,
) -> None:
    assert await lab.controller.terminate() == 0
    lab.ec2.prices.denied = True
    with closing(sqlite3.connect(lab.folder / "state.db")) as store, store:
        store.execute(
            "UPDATE readings SET read_at = read_at - 200000 WHERE kind = 'on_demand_price'"
        )
    await lab.start_controller()
    await run_job(lab, "third")
    await prices(lab, "on-demand", "cache", 1)
    refused = list(log_lines(lab, "prices_not_read"))
    assert {line["capacity_type"] for line in refused} == {"on-demand"}
    assert "AccessDeniedException" in refused[0]["error"]
    assert "docs/ec2.md#permissions" in refused[0]["hint"]
    assert refused[0]["in_use"] == {"cache": 1}
    newest = list(read_records(lab).machines)[-1]
    assert newest.placement.dollars_per_hour == ON_DEMAND
    await at_rest(lab, PATIENCE)
    assert lab.wrong_jobs() == []
