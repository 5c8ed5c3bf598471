"""What the controller does when capacity is short, jobs go away, and machines grow old.

All stories begin together, in one laboratory, and are then looked at one by one.
"""

from collections.abc import Mapping
from dataclasses import replace

import pytest
import pytest_asyncio

from autoscaler.model.catalogue import CapacityType
from autoscaler.model.machines.machine import Machine, MachineState, TerminationReason
from lab.ec2.instances import Instance, InstanceState, Pool
from lab.github.records import Job as PushedJob
from lab.github.records import JobStatus
from lab.laboratory import Laboratory
from tests.lab.system.harness import (
    SKU_TAG,
    job,
    log_lines,
    read_records,
    shows,
    started,
    until,
    wrong_slots,
)
from tests.lab.system.pace import PATIENCE

pytestmark = pytest.mark.asyncio(loop_scope="module")

Pushed = Mapping[str, list[PushedJob]]

ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pushed(lab: Laboratory) -> Pushed:
    """The jobs of the stories that begin with the laboratory, by SKU; EC2 lacks what they say."""
    faults = lab.ec2.faults
    for zone, machines in zip(ZONES, (1, 0, 5), strict=True):
        faults.set_capacity(_pool("g5.xlarge", zone), machines)
        faults.set_capacity(_pool("g6.xlarge", zone), 0)
        faults.set_capacity(_pool("g5.4xlarge", zone), 1)
        faults.refuse(_pool("p5.4xlarge", zone), "VcpuLimitExceeded")
        faults.refuse(_pool("f2.6xlarge", zone), "VcpuLimitExceeded")
    refused = lab.github.push([job("refused", "private", 30.0, "acme/gadgets")])
    forked = [replace(job("forked", "closed", 30.0), workflow="PR", fork="stranger/widgets")]
    counts = {"zones": 3, "types": 3, "scarce": 5, "options": 3, "quota": 1, "private": 1}
    return {
        **{sku: _push(lab, sku, count) for sku, count in counts.items()},
        "refused": refused,
        "forked": lab.github.push(forked),
        "lifetime": _push(lab, "lifetime", 1, 86_400.0),
    }


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


def _ready(lab: Laboratory, sku: str) -> list[Machine]:
    return [one for one in _machines(lab, sku) if one.state is MachineState.READY]


def _ended_for(lab: Laboratory, sku: str, reason_code: TerminationReason) -> list[Machine]:
    return [
        one
        for one in _machines(lab, sku)
        if one.state is MachineState.TERMINATED and one.termination.reason is reason_code
    ]


async def _all_run_once(lab: Laboratory, sku: str, jobs: list[PushedJob]) -> None:
    """Return once these jobs have run and their machines are gone."""

    def why() -> object:
        return [(one.spec.name, one.status, one.starts) for one in jobs], lab.controller.log_end()

    await until(lambda: all(one.conclusion for one in jobs), PATIENCE, why)
    assert [one.conclusion for one in jobs] == ["success"] * len(jobs)
    assert [len(one.starts) for one in jobs] == [1] * len(jobs)
    await until(lambda: not _alive(lab, sku), PATIENCE, why)


@pytest.mark.case(
    "capacity is exhausted, and no message says so",
    topic="Complaints about other fleets",
    source="runs-on#73; runs-on#317; GAR#2612; openvdb/fvdb-core#961",
)
async def test_a_job_without_quota_waits_with_a_reason(lab: Laboratory, pushed: Pushed) -> None:
    def reported() -> bool:
        return any(
            line["sku"] == "quota" and "VcpuLimitExceeded" in line["reason"]
            for line in log_lines(lab, "jobs_wait")
        )

    await until(reported, PATIENCE, lab.controller.log_end)
    assert not _instances(lab, "quota")
    assert pushed["quota"][0].status is JobStatus.QUEUED
    for zone in ZONES:
        lab.ec2.faults.refuse(_pool("f2.6xlarge", zone), None)


@pytest.mark.case(
    "no capacity: only that type, zone and capacity type is on hold, for 3 minutes at first",
    topic="EC2's API",
    source="Karpenter pkg/cache",
)
async def test_a_zone_without_capacity_is_replaced_by_another(
    lab: Laboratory, pushed: Pushed
) -> None:
    await _all_run_once(lab, "zones", pushed["zones"])
    zones = [one.zone for one in _instances(lab, "zones")]
    assert sorted(zones) == ["us-east-1a", "us-east-1c", "us-east-1c"]


@pytest.mark.case(
    "no capacity of a type anywhere: the next type, then the next launch option",
    topic="EC2's API",
    source="Karpenter pkg/errors",
)
async def test_a_type_without_capacity_is_replaced_by_the_next(
    lab: Laboratory, pushed: Pushed
) -> None:
    await _all_run_once(lab, "types", pushed["types"])
    assert [one.instance_type for one in _instances(lab, "types")] == ["g5.2xlarge"] * 3


@pytest.mark.case(
    "a quota is exhausted: its whole family is on hold, for longer",
    topic="EC2's API",
    source="EC2: error codes",
)
async def test_a_quota_that_is_used_up_leads_to_the_next_option(
    lab: Laboratory, pushed: Pushed
) -> None:
    await _all_run_once(lab, "options", pushed["options"])
    assert [one.instance_type for one in _instances(lab, "options")] == ["c7i.2xlarge"] * 3


@pytest.mark.case(
    "a job of a repository that the runner group does not admit",
    topic="GitHub's events",
    source="GitHub: runner groups",
)
async def test_a_repository_without_access_gets_no_machine(lab: Laboratory, pushed: Pushed) -> None:
    await _all_run_once(lab, "private", pushed["private"])
    (refused,) = pushed["refused"]
    assert refused.status is JobStatus.QUEUED
    assert len(_instances(lab, "private")) == 1
    (line,) = log_lines(lab, "job_unmatched")
    assert (line["code"], line["nearest_sku"]) == ("access", "private")
    await shows(lab, {'autoscaler_jobs_unmatched_total{reason="access"}': 1}, PATIENCE)
    lab.github.cancel(refused)


@pytest.mark.case(
    "a job of a pull request from a fork, before and after its run's head repository is known",
    topic="GitHub's events",
    source="GitHub: secure use; GitHub: get a workflow run",
)
async def test_a_job_of_a_fork_gets_no_machine_and_has_a_reason(
    lab: Laboratory, pushed: Pushed
) -> None:
    def refused() -> list[str]:
        return [line["code"] for line in log_lines(lab, "job_refused")]

    await until(lambda: bool(refused()), PATIENCE, lab.controller.log_end)
    (forked,) = pushed["forked"]
    assert refused() == ["fork_not_allowed"]
    assert forked.status is JobStatus.QUEUED
    assert not _instances(lab, "closed")
    (own,) = _push(lab, "closed", 1)
    lab.github.cancel(forked)
    await _all_run_once(lab, "closed", [own])


async def test_the_ready_minimum_serves_at_once_and_is_refilled(lab: Laboratory) -> None:
    await until(lambda: len(_ready(lab, "warm")) == 2, PATIENCE, lab.controller.log_end)
    ready = {machine.id for machine in _ready(lab, "warm")}
    jobs = _push(lab, "warm", 1)
    await until(lambda: started(jobs), PATIENCE, lab.controller.log_end)
    served = {one.machine for one in read_records(lab).runners if one.name == jobs[0].starts[0]}
    assert len(served & ready) == 1
    await until(
        lambda: len(_instances(lab, "warm")) == 3 and len(_ready(lab, "warm")) == 2,
        PATIENCE,
        lab.controller.log_end,
    )


@pytest.mark.case(
    "cancelled jobs leave machines behind",
    topic="Complaints about other fleets",
    source="GAR#1853",
)
async def test_the_machine_of_a_cancelled_job_becomes_ready_without_a_registration(
    lab: Laboratory,
) -> None:
    (cancelled,) = _push(lab, "cancelled", 1)
    await until(lambda: bool(_instances(lab, "cancelled")), PATIENCE, lab.controller.log_end)
    lab.github.cancel(cancelled)
    await until(
        lambda: bool(_ended_for(lab, "cancelled", TerminationReason.IDLE)),
        PATIENCE,
        lab.controller.log_end,
    )
    (machine,) = _machines(lab, "cancelled")
    assert machine.work.tries == 0
    assert cancelled.starts == []


async def test_a_ready_machine_is_replaced_at_its_age_and_never_assigned(lab: Laboratory) -> None:
    await until(
        lambda: bool(_ended_for(lab, "aged", TerminationReason.MAX_AGE)),
        PATIENCE,
        lab.controller.log_end,
    )
    old = _ended_for(lab, "aged", TerminationReason.MAX_AGE)[0]
    assert old.work.tries == 0
    assert old.progress.ready_at is not None
    assert old.progress.ended_at is not None
    assert old.progress.ended_at - old.progress.ready_at >= 180.0
    await until(lambda: len(_ready(lab, "aged")) == 1, PATIENCE, lab.controller.log_end)
    assert _ready(lab, "aged")[0].id != old.id


@pytest.mark.case(
    "a job, or a hook without a timeout, that never ends",
    topic="Runner and listener",
    source="actions/runner ADR 1751; ARC#4100",
)
async def test_a_machine_past_its_lifetime_is_terminated_even_if_it_runs_a_job(
    lab: Laboratory, pushed: Pushed
) -> None:
    await until(
        lambda: bool(_ended_for(lab, "lifetime", TerminationReason.LIFETIME)),
        PATIENCE,
        lab.controller.log_end,
    )
    (machine,) = _machines(lab, "lifetime")
    assert machine.work.runner == pushed["lifetime"][0].starts[0]
    assert machine.progress.assigned_at is not None
    assert machine.progress.ended_at is not None
    assert machine.progress.ended_at - machine.progress.assigned_at >= 240.0


async def test_more_jobs_than_all_offerings_have_capacity_for_run_one_after_the_other(
    lab: Laboratory, pushed: Pushed
) -> None:
    await _all_run_once(lab, "scarce", pushed["scarce"])


async def test_a_job_that_waits_for_quota_runs_when_quota_is_free(
    lab: Laboratory, pushed: Pushed
) -> None:
    for zone in ZONES:
        lab.ec2.faults.refuse(_pool("f2.6xlarge", zone), None)
    await _all_run_once(lab, "quota", pushed["quota"])


async def test_no_slot_of_any_story_has_a_second_machine(lab: Laboratory) -> None:
    assert _alive(lab, "warm")
    assert wrong_slots(lab) == []
