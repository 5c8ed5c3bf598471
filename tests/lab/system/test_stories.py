"""What the controller does when capacity is short, jobs go away, machines grow old, and it is stopped."""

import asyncio
import time

import pytest

from autoscaler.lab.ec2.instances import Instance, InstanceState, Pool
from autoscaler.lab.github.records import Job as PushedJob
from autoscaler.lab.laboratory import Laboratory
from autoscaler.model.calls import CallState
from autoscaler.model.catalogue import CapacityType
from autoscaler.model.machines import EndGround, Machine, MachineState
from tests.lab.system.harness import (
    SKU_TAG,
    job,
    log_lines,
    read_records,
    started,
    until,
    wrong_slots,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")
PATIENCE = 20.0
"""Real seconds; a story takes one to four."""


def _pool(instance_type: str, zone: str) -> Pool:
    return Pool(instance_type, zone, CapacityType.ON_DEMAND)


def _push(lab: Laboratory, sku: str, count: int, seconds: float = 30.0) -> list[PushedJob]:
    return lab.github.push([job(f"{sku}-{n}", sku, seconds) for n in range(count)])


def _instances(lab: Laboratory, sku: str) -> list[Instance]:
    return [one for one in lab.ec2.instances if one.tags[SKU_TAG] == sku]


def _alive(lab: Laboratory, sku: str) -> list[Instance]:
    return [one for one in _instances(lab, sku) if one.state is not InstanceState.TERMINATED]


def _machines(lab: Laboratory, sku: str) -> list[Machine]:
    return [machine for machine in read_records(lab).machines if machine.sku == sku]


def _parked(lab: Laboratory, sku: str) -> list[Machine]:
    return [one for one in _machines(lab, sku) if one.state is MachineState.PARKED]


async def _all_run_once(lab: Laboratory, sku: str, jobs: list[PushedJob]) -> None:
    """Return once these jobs have run and their machines are gone."""

    def why() -> object:
        return [(one.spec.name, one.status, one.starts) for one in jobs], lab.controller.log_end()

    await until(lambda: all(one.conclusion for one in jobs), PATIENCE, why)
    assert [one.conclusion for one in jobs] == ["success"] * len(jobs)
    assert [len(one.starts) for one in jobs] == [1] * len(jobs)
    await until(lambda: not _alive(lab, sku), PATIENCE, why)


async def test_a_zone_without_capacity_is_made_up_for_by_another(lab: Laboratory) -> None:
    for zone, machines in zip(ZONES, (1, 0, 5), strict=True):
        lab.ec2.faults.set_capacity(_pool("g5.xlarge", zone), machines)
    await _all_run_once(lab, "zones", _push(lab, "zones", 3))
    zones = [one.zone for one in _instances(lab, "zones")]
    assert sorted(zones) == ["us-east-1a", "us-east-1c", "us-east-1c"]


async def test_a_type_without_capacity_is_made_up_for_by_the_next(lab: Laboratory) -> None:
    for zone in ZONES:
        lab.ec2.faults.set_capacity(_pool("g6.xlarge", zone), 0)
    await _all_run_once(lab, "types", _push(lab, "types", 3))
    assert {one.instance_type for one in _instances(lab, "types")} == {"g5.2xlarge"}


async def test_more_jobs_than_all_offerings_have_run_one_after_the_other(lab: Laboratory) -> None:
    for zone in ZONES:
        lab.ec2.faults.set_capacity(_pool("g5.xlarge", zone), 1)
    await _all_run_once(lab, "zones", _push(lab, "zones", 5))


async def test_a_quota_that_is_used_up_leads_to_the_next_rung(lab: Laboratory) -> None:
    for zone in ZONES:
        lab.ec2.faults.refuse(_pool("p3.2xlarge", zone), "VcpuLimitExceeded")
    await _all_run_once(lab, "rungs", _push(lab, "rungs", 3))
    assert {one.instance_type for one in _instances(lab, "rungs")} == {"c7i.2xlarge"}


async def test_without_another_rung_the_job_is_held_with_a_reason_and_runs_later(
    lab: Laboratory,
) -> None:
    for zone in ZONES:
        lab.ec2.faults.refuse(_pool("f2.6xlarge", zone), "VcpuLimitExceeded")
    jobs = _push(lab, "quota", 1)
    await until(
        lambda: any(
            line.get("sku") == "quota" and "VcpuLimitExceeded" in str(line.get("reason"))
            for line in log_lines(lab, "jobs_wait")
        ),
        PATIENCE,
        lab.controller.log_end,
    )
    assert not _instances(lab, "quota")
    for zone in ZONES:
        lab.ec2.faults.refuse(_pool("f2.6xlarge", zone), None)
    await _all_run_once(lab, "quota", jobs)


async def test_a_cancelled_jobs_machine_goes_back_idle_without_a_registration(
    lab: Laboratory,
) -> None:
    (pushed,) = _push(lab, "cancelled", 1)
    await until(lambda: bool(_instances(lab, "cancelled")), PATIENCE, lab.controller.log_end)
    lab.github.cancel(pushed)
    await until(
        lambda: [one.state for one in _machines(lab, "cancelled")] == [MachineState.GONE],
        PATIENCE,
        lab.controller.log_end,
    )
    (machine,) = _machines(lab, "cancelled")
    assert machine.ground is EndGround.IDLE
    assert machine.tries == 0
    assert pushed.starts == []


async def test_a_machine_past_its_lifetime_is_ended_whatever_it_does(lab: Laboratory) -> None:
    (pushed,) = _push(lab, "lifetime", 1, 86_400.0)
    await until(lambda: started([pushed]), PATIENCE, lab.controller.log_end)
    await until(lambda: not _alive(lab, "lifetime"), PATIENCE, lab.controller.log_end)
    (machine,) = _machines(lab, "lifetime")
    assert machine.ground is EndGround.LIFETIME
    assert machine.granted_at is not None
    assert machine.ended_at is not None
    assert machine.ended_at - machine.granted_at >= 240.0


async def test_the_parked_minimum_serves_at_once_and_is_refilled(lab: Laboratory) -> None:
    await until(lambda: len(_parked(lab, "warm")) == 2, PATIENCE, lab.controller.log_end)
    parked = {machine.id for machine in _parked(lab, "warm")}
    (pushed,) = _push(lab, "warm", 1)
    await until(lambda: started([pushed]), PATIENCE, lab.controller.log_end)
    served = {one.machine for one in read_records(lab).runners if one.name == pushed.starts[0]}
    assert served <= parked
    await until(lambda: bool(pushed.conclusion), PATIENCE, lab.controller.log_end)
    await until(lambda: len(_alive(lab, "warm")) == 2, PATIENCE, lab.controller.log_end)
    await until(lambda: len(_parked(lab, "warm")) == 2, PATIENCE, lab.controller.log_end)
    assert len(_instances(lab, "warm")) == 3


async def test_a_parked_machine_is_replaced_at_its_age_and_never_granted(lab: Laboratory) -> None:
    def replaced() -> list[Machine]:
        return [one for one in _machines(lab, "aged") if one.ground is EndGround.MAX_AGE]

    await until(lambda: bool(replaced()), PATIENCE, lab.controller.log_end)
    await until(lambda: len(_parked(lab, "aged")) == 1, PATIENCE, lab.controller.log_end)
    old = replaced()[0]
    assert old.tries == 0
    assert old.parked_at is not None
    assert old.ended_at is not None
    assert old.ended_at - old.parked_at >= 180.0
    assert _parked(lab, "aged")[0].id != old.id


async def test_a_job_of_a_repository_that_is_not_allowed_gets_no_machine(lab: Laboratory) -> None:
    (refused,) = lab.github.push([job("refused", "private", 30.0, "acme/gadgets")])
    await _all_run_once(lab, "private", _push(lab, "private", 1))
    assert len(_instances(lab, "private")) == 1
    assert refused.starts == []
    assert refused.status == "queued"
    lab.github.cancel(refused)


async def test_sigterm_finishes_what_is_in_flight_and_nothing_is_done_twice(
    lab: Laboratory,
) -> None:
    templates = lab.ec2.calls["CreateLaunchTemplate"]
    jobs = _push(lab, "restarted", 30)
    await until(
        lambda: lab.ec2.calls["CreateLaunchTemplate"] > templates, PATIENCE, lab.controller.log_end
    )
    began = time.monotonic()
    assert await lab.controller.terminate() == 0
    assert time.monotonic() - began < 10.0
    mine = [call for call in read_records(lab).calls if call.sku == "restarted"]
    assert sum(len(call.slots) for call in mine) == 30
    assert {call.state for call in mine} == {CallState.SETTLED}
    assert len(_instances(lab, "restarted")) == 30
    await lab.start_controller()
    await _all_run_once(lab, "restarted", jobs)
    assert len(_instances(lab, "restarted")) == 30
    await asyncio.sleep(0)
    assert wrong_slots(lab) == []
