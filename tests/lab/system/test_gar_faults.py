"""Four ways in which a fleet loses jobs or machines, reproduced on another autoscaler: none happens here.

They were seen in github-aws-runners/terraform-aws-github-runner 7.11, run against an AWS in memory.
One laboratory for all stories, one after the other. The last one looks at what all of them left.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
import pytest_asyncio
import yaml

from autoscaler.model.catalogue import CapacityType
from autoscaler.model.machines.failures import FailureClass
from lab.ec2.instances import Instance, Pool
from lab.ec2.moto import MotoProcess
from lab.github.records import Job as PushedJob
from lab.github.records import JobStatus
from lab.github.settings import AnswerFault, DeliveryFaults
from lab.laboratory import LabFleet, Laboratory
from tests.lab.system.harness import (
    SKU_TAG,
    at_rest,
    ec2_sku,
    job,
    log_lines,
    read_records,
    started,
    unsettled,
    until,
    wrong_runners,
    wrong_slots,
)
from tests.lab.system.pace import PATIENCE, yielding

pytestmark = pytest.mark.asyncio(loop_scope="module")

SCALE = 60.0
"""Real seconds; no story takes half of it."""
QUOTA_POOLS = [
    Pool("f2.6xlarge", zone, CapacityType.ON_DEMAND)
    for zone in ("us-east-1a", "us-east-1b", "us-east-1c")
]
REGISTER = "POST /orgs/{org}/actions/runners/generate-jitconfig"
LIMIT = 60.0
"""Seconds for which GitHub refuses registrations, as it says itself."""
CAP_BEFORE, CAP = 5, 3
_LOOK_EVERY = 0.005

SKUS: dict[str, Any] = {
    "repeated": ec2_sku("g5.xlarge"),
    "capped": ec2_sku("g5.2xlarge", max_machines=CAP_BEFORE),
    "quota": ec2_sku("f2.6xlarge"),
    "limited": ec2_sku("g6.xlarge"),
}


Pushed = Mapping[str, list[PushedJob]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lab(moto: MotoProcess) -> AsyncIterator[Laboratory]:
    """A laboratory with machines of the crowd, whose controller is ready."""
    fleet = LabFleet("acme", ("widgets",), SKUS, scale=yielding(SCALE), most_machines=150)
    async with Laboratory(fleet, moto) as laboratory:
        await laboratory.start_controller()
        yield laboratory


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pushed(lab: Laboratory) -> Pushed:
    """The jobs of the two longest stories, side by side.

    Five machines work until the test ends their jobs. Meanwhile their cap becomes three, and five
    more jobs are queued. Three jobs find no quota.
    """
    for pool in QUOTA_POOLS:
        lab.ec2.faults.refuse(pool, "VcpuLimitExceeded")
    quota = _push(lab, "quota", [20.0] * 3)
    at_work = _push(lab, "capped", [math.inf] * CAP_BEFORE)
    await until(lambda: started(at_work), PATIENCE, lab.controller.log_end)
    assert await lab.controller.terminate() == 0
    _set_cap(lab, CAP)
    await lab.start_controller()
    return {"quota": quota, "capped": at_work + _push(lab, "capped", [20.0] * 5)}


def _set_cap(lab: Laboratory, machines: int) -> None:
    path = lab.folder / "fleet.yaml"
    fleet = yaml.safe_load(path.read_text())
    fleet["skus"]["capped"]["max_machines"] = machines
    path.write_text(yaml.safe_dump(fleet, sort_keys=False))


def _push(lab: Laboratory, sku: str, seconds: list[float]) -> list[PushedJob]:
    first = len(lab.github.jobs)
    return lab.github.push([job(f"{sku}-{first + n}", sku, long) for n, long in enumerate(seconds)])


def _instances(lab: Laboratory, sku: str) -> list[Instance]:
    return [one for one in lab.ec2.instances if one.tags[SKU_TAG] == sku]


async def _run(lab: Laboratory, jobs: list[PushedJob]) -> None:
    """Return once these jobs have run, each once."""

    def why() -> object:
        return [(one.spec.name, one.status, one.starts) for one in jobs], lab.controller.log_end()

    await until(lambda: all(one.conclusion for one in jobs), PATIENCE, why)
    assert [one.conclusion for one in jobs] == ["success"] * len(jobs)
    assert [len(one.starts) for one in jobs] == [1] * len(jobs)


@pytest.mark.case(
    "a repeated delivery causes two machines",
    topic="Complaints about other fleets",
    source="GAR 7.11",
)
async def test_a_repeated_delivery_launches_one_machine(lab: Laboratory) -> None:
    lab.github.disturb(DeliveryFaults(duplicate=1.0))
    jobs = _push(lab, "repeated", [20.0] * 4)
    await _run(lab, jobs)
    await lab.github.delivered()
    lab.github.disturb(DeliveryFaults())
    # Each job's `queued`, `in_progress` and `completed`.
    assert lab.github.deliveries["duplicated"] >= 3 * len(jobs)
    assert len(_instances(lab, "repeated")) == len(jobs)


@pytest.mark.case(
    "jobs that met VcpuLimitExceeded are lost",
    topic="Complaints about other fleets",
    source="GAR 7.11",
)
async def test_jobs_refused_for_a_quota_run_after_it_was_raised(
    lab: Laboratory, pushed: Pushed
) -> None:
    jobs = pushed["quota"]
    await _reported(lab, "quota", "VcpuLimitExceeded")
    assert _instances(lab, "quota") == []
    assert {one.status for one in jobs} == {JobStatus.QUEUED}
    for pool in QUOTA_POOLS:
        lab.ec2.faults.refuse(pool, None)
    await _run(lab, jobs)
    assert len(_instances(lab, "quota")) == len(jobs)
    calls = [call for call in read_records(lab).calls if call.sku == "quota"]
    assert {call.failure for call in calls} == {FailureClass.QUOTA, None}


@pytest.mark.case(
    "a limit is lowered below the machines at work",
    topic="Operators' files",
    source="GAR 7.11",
)
@pytest.mark.case(
    "jobs beyond a limit are lost",
    topic="Complaints about other fleets",
    source="GAR 7.11",
)
async def test_jobs_beyond_a_lowered_cap_wait_and_then_run(lab: Laboratory, pushed: Pushed) -> None:
    await _reported(lab, "capped", f"max_machines of capped ({CAP}) is reached")
    for one in pushed["capped"][:CAP_BEFORE]:
        assert not one.conclusion, "the cap was overdrawn"
        lab.github.end(one)
    await _run(lab, pushed["capped"])
    machines = _instances(lab, "capped")
    assert len(machines) == len(pushed["capped"])
    assert _there(machines[:CAP_BEFORE], machines[CAP_BEFORE - 1].visible_at) == CAP_BEFORE
    assert max(_there(machines, later.visible_at) for later in machines[CAP_BEFORE:]) == CAP


async def _reported(lab: Laboratory, sku: str, words: str) -> None:
    """Return once the log says why jobs of a SKU wait, in these words among others."""

    def reported() -> bool:
        lines = log_lines(lab, "jobs_wait")
        return any(line["sku"] == sku and words in line["reason"] for line in lines)

    await until(reported, PATIENCE, lab.controller.log_end)


def _there(machines: list[Instance], at: float) -> int:
    """How many of them there were at a moment; an end counts before a launch of the same one."""
    return sum(
        one.visible_at <= at and (one.terminated_at is None or one.terminated_at > at)
        for one in machines
    )


@pytest.mark.case(
    "403 or 429 with `retry-after`",
    topic="GitHub's REST API",
    source="GitHub: rate limits",
)
@pytest.mark.case(
    "machines are launched and never registered while GitHub limits registrations",
    topic="Complaints about other fleets",
    source="GAR 7.11",
)
async def test_a_minute_without_registrations_delays_jobs_and_loses_no_machine(
    lab: Laboratory,
) -> None:
    registered = lab.github.calls[REGISTER, 201]
    lab.github.inject_faults(
        AnswerFault("status", REGISTER, None, status=403, retry_after=int(LIMIT))
    )
    begun = lab.clock.now()
    jobs = _push(lab, "limited", [20.0] * 20)
    while not lab.github.calls[REGISTER, 403]:
        begun = lab.clock.now()
        await asyncio.sleep(_LOOK_EVERY)
    half = begun + LIMIT / 2
    await until(lambda: lab.clock.now() > half, PATIENCE, lab.controller.log_end)
    lab.github.inject_faults()
    await until(
        lambda: lab.github.calls[REGISTER, 201] > registered, PATIENCE, lab.controller.log_end
    )
    resumed = lab.clock.now()
    await _run(lab, jobs)
    # Each registration that was under way when GitHub said no, and none a second time.
    assert lab.github.calls[REGISTER, 403] <= len(jobs)
    assert resumed >= begun + LIMIT
    assert len(_instances(lab, "limited")) == len(jobs)
    assert lab.github.calls[REGISTER, 201] - registered == len(jobs)


async def test_no_resource_is_left_and_no_request_was_carried_out_twice(lab: Laboratory) -> None:
    await at_rest(lab, PATIENCE)
    assert lab.wrong_jobs() == []
    assert wrong_slots(lab) == []
    assert wrong_runners(lab) == []
    assert unsettled(lab) == []
    assert await lab.controller.terminate() == 0
