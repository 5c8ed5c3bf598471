"""A full capacity reservation and an ending capacity block, with the real controller in the whole lab."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from typing import Any

import pytest
import pytest_asyncio

from autoscaler.model.catalogue import CapacityType
from lab.ec2.instances import Instance
from lab.ec2.moto import MotoProcess
from lab.laboratory import LabFleet, Laboratory
from tests.lab.system.harness import SKU_TAG, at_rest, job, read_records, until
from tests.lab.system.pace import PATIENCE, yielding

pytestmark = pytest.mark.asyncio(loop_scope="module")

SCALE = 100.0
NAME, ZONE = "cr-0f00", "us-east-1b"
PLAIN = {"provider": "lab", "instance_types": ["g5.xlarge"]}
RESERVED = PLAIN | {"capacity_reservation": NAME}
KIND = "p4d.24xlarge"


def _block(name: str) -> dict[str, Any]:
    said = {"capacity": ["capacity-block"], "capacity_reservation": name}
    return {"provider": "lab", "instance_types": [KIND], **said}


SKUS: dict[str, Any] = {
    "reserved": {"on": [RESERVED, PLAIN]},
    "only": {"on": [RESERVED]},
    "plain": {"on": [PLAIN]},
    "block": {"on": [_block("cr-0ending"), _block("cr-0lasting")]},
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lab(moto: MotoProcess) -> AsyncIterator[Laboratory]:
    """A laboratory whose account has a reservation of two machines, and two capacity blocks."""
    fleet = LabFleet("acme", ("widgets",), SKUS, scale=yielding(SCALE), most_machines=50)
    async with Laboratory(fleet, moto) as laboratory:
        laboratory.ec2.reservations.add(NAME, "g5.xlarge", ZONE, 2)
        # EC2 would still launch into the first one for almost an hour.
        ending = laboratory.clock.now() + 5400.0 - 1.0
        lasting = ending + 30 * 86400.0
        laboratory.ec2.reservations.add_block("cr-0ending", KIND, ZONE, 1, ending)
        laboratory.ec2.reservations.add_block("cr-0lasting", KIND, ZONE, 1, lasting)
        await laboratory.start_controller()
        yield laboratory


async def _run(lab: Laboratory, sku: str, count: int) -> list[Instance]:
    """Run jobs of a SKU at once; return their machines."""
    before = len(lab.ec2.instances)
    jobs = lab.github.push([job(f"{sku}-{before + n}", sku, 60.0) for n in range(count)])
    await until(lambda: all(one.conclusion for one in jobs), PATIENCE, lab.controller.log_end)
    assert [one.conclusion for one in jobs] == ["success"] * count
    await at_rest(lab, PATIENCE)
    return [one for one in list(lab.ec2.instances)[before:] if one.tags[SKU_TAG] == sku]


def _held_back(lab: Laboratory) -> set[str]:
    with closing(sqlite3.connect(lab.folder / "state.db")) as store:
        return {key for (key,) in store.execute("SELECT key FROM cooldowns WHERE failures > 0")}


async def test_a_reservation_is_filled_before_the_next_launch_option(lab: Laboratory) -> None:
    machines = await _run(lab, "reserved", 4)
    inside = [one for one in machines if one.specification.reservation == NAME]
    assert (len(inside), len(machines)) == (2, 4)
    assert {one.zone for one in inside} == {ZONE}
    # The controller knew the size: EC2 refused nothing.
    assert {call.failure for call in read_records(lab).calls} == {None}
    assert _held_back(lab) == set()


@pytest.mark.case(
    "a capacity reservation is full: it is on hold, and its instance type and zone are not",
    topic="EC2's API",
    source="EC2: Capacity Reservations",
)
async def test_a_reservation_that_others_use_holds_back_only_itself(lab: Laboratory) -> None:
    held = lab.ec2.reservations.add(NAME, "g5.xlarge", ZONE, 2)
    held.in_other_accounts = 2
    machines = await _run(lab, "reserved", 1)
    assert [one.specification.reservation for one in machines] == [""]
    codes = {call.reason.partition(":")[0] for call in read_records(lab).calls if call.failure}
    assert codes == {"ReservationCapacityExceeded"}
    assert _held_back(lab) == {f"offering:lab/g5.xlarge/{ZONE}/on-demand/{NAME}"}
    (plain,) = await _run(lab, "plain", 1)
    assert plain.specification.reservation == ""
    # The hold ends by itself: the reservation has room again.
    held.in_other_accounts = 0
    (only,) = await _run(lab, "only", 1)
    assert only.specification.reservation == NAME
    assert _held_back(lab) == set()
    assert lab.wrong_jobs() == []


async def test_no_job_starts_in_a_capacity_block_that_ends_soon(lab: Laboratory) -> None:
    (machine,) = await _run(lab, "block", 1)
    assert machine.specification.reservation == "cr-0lasting"
    assert machine.capacity_type is CapacityType.CAPACITY_BLOCK
    assert lab.wrong_jobs() == []
