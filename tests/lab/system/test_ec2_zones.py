"""Zones that do not sell a type, and a machine that EC2 does not terminate, with the real controller.

One laboratory for all stories, one after the other.
"""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from typing import Any

import pytest
import pytest_asyncio

from autoscaler.model.cooldowns import offering_key
from autoscaler.model.machines.launch_requests import LaunchRequest
from lab.ec2.moto import MotoProcess
from lab.github.records import Job as PushedJob
from lab.laboratory import LabFleet, Laboratory
from tests.lab.system.harness import (
    SKU_TAG,
    Operator,
    at_rest,
    job,
    log_lines,
    read_records,
    shows,
    until,
)
from tests.lab.system.pace import PATIENCE, yielding

pytestmark = pytest.mark.asyncio(loop_scope="module")

SCALE = 100.0
ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")
WORDS = "not supported in your requested Availability Zone"


def _sku(instance_type: str) -> dict[str, Any]:
    return {"on": [{"provider": "lab", "instance_types": [instance_type]}]}


SKUS = {"listed": _sku("g5.xlarge"), "unlisted": _sku("g6.xlarge"), "stays": _sku("m7i.xlarge")}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lab(moto: MotoProcess) -> AsyncIterator[Laboratory]:
    """A laboratory whose first zone sells no g5.xlarge, as the controller reads when it starts."""
    fleet = LabFleet("acme", ("widgets",), SKUS, scale=yielding(SCALE), most_machines=50)
    async with Laboratory(fleet, moto) as laboratory:
        laboratory.ec2.faults.stop_selling("g5.xlarge", ZONES[0])
        await laboratory.start_controller()
        yield laboratory


async def _run(lab: Laboratory, sku: str, count: int) -> None:
    first = len(lab.github.jobs)
    jobs: list[PushedJob] = lab.github.push(
        [job(f"{sku}-{first + n}", sku, 20.0) for n in range(count)]
    )
    await until(lambda: all(one.conclusion for one in jobs), PATIENCE, lab.controller.log_end)
    assert [one.conclusion for one in jobs] == ["success"] * count


def _calls(lab: Laboratory, sku: str) -> list[LaunchRequest]:
    return [call for call in read_records(lab).calls if call.sku == sku]


def _held_back(lab: Laboratory) -> set[str]:
    with closing(sqlite3.connect(lab.folder / "state.db")) as store:
        return {key for (key,) in store.execute("SELECT key FROM cooldowns WHERE failures > 0")}


def _zones_asked(call: LaunchRequest) -> set[str]:
    return {offering.rsplit("/", 2)[1] for offering in call.offerings}


@pytest.mark.case(
    "a zone does not sell an instance type: us-east-1e lacks most GPU types",
    topic="EC2's API",
    source="EC2: DescribeInstanceTypeOfferings",
)
async def test_no_launch_is_requested_in_a_zone_that_does_not_offer_the_type(
    lab: Laboratory,
) -> None:
    assert lab.ec2.calls["DescribeInstanceTypeOfferings"] > 0
    await _run(lab, "listed", 3)
    calls = _calls(lab, "listed")
    assert calls
    assert all(_zones_asked(call) == set(ZONES[1:]) for call in calls)
    assert {call.failure for call in calls} == {None}


@pytest.mark.case(
    "CreateFleet answers 200 with InvalidFleetConfiguration for one override: the zone does not "
    "sell the type",
    topic="EC2's API",
    source="packer#9946; compiler-explorer/infra#601",
)
async def test_a_zone_that_stopped_offering_a_type_puts_only_its_offering_on_hold(
    lab: Laboratory,
) -> None:
    lab.ec2.faults.stop_selling("g6.xlarge", ZONES[0])
    # EC2 tries one pool, is refused, and labels the others as it does those that it did not try.
    lab.ec2.faults.pools_tried = 1
    await _run(lab, "unlisted", 1)
    lab.ec2.faults.pools_tried = None
    first, *later = sorted(_calls(lab, "unlisted"), key=lambda call: call.created_at)
    assert _zones_asked(first) == set(ZONES)
    assert WORDS in first.reason
    assert later
    assert {ZONES[0]}.isdisjoint(*(_zones_asked(call) for call in later))
    # Neither the launch option nor the untried zones are on hold.
    assert _held_back(lab) == {offering_key(one) for one in first.offerings if ZONES[0] in one}
    assert {one.zone for one in lab.ec2.instances if one.tags[SKU_TAG] == "unlisted"} == {ZONES[1]}


@pytest.mark.case(
    "EC2 accepts or refuses TerminateInstances again and again, and the machine still exists",
    topic="EC2's machines",
    source="EC2: TerminateInstances",
)
async def test_a_machine_that_ec2_does_not_terminate_is_reported_from_the_third_request_on(
    lab: Laboratory,
) -> None:
    operator = Operator(lab)
    lab.ec2.faults.leak_next(1)
    await _run(lab, "stays", 1)
    (instance,) = [one for one in lab.ec2.instances if one.tags[SKU_TAG] == "stays"]
    assert await operator.unverified() == []
    await until(
        lambda: bool(log_lines(lab, "machine_not_terminated")), PATIENCE, lab.controller.log_end
    )
    reported = log_lines(lab, "machine_not_terminated")[0]
    assert (reported["provider_id"], reported["attempts"]) == (instance.id, 3)
    assert reported["provider_says"] == "running"
    await shows(lab, {"autoscaler_machines_not_terminating": 1}, PATIENCE)
    (line,) = await operator.unverified()
    assert instance.id in line
    assert "requests to terminate it" in line
    assert "says: running" in line
    lab.ec2.faults.leak(instance.id, leaks=False)
    await at_rest(lab, PATIENCE)
    await shows(lab, {"autoscaler_machines_not_terminating": 0}, PATIENCE)
    assert await operator.unverified() == []
    assert lab.wrong_jobs() == []
