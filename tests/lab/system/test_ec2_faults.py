"""EC2 lacks, refuses, swallows and breaks what it was asked for: every job runs once all the same.

One laboratory for all stories, one after the other, because a fault hits the calls of every test. The last
one looks at what all of them left.
"""

import math
import random
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest
import pytest_asyncio

from autoscaler.ledger.machines.lists import ABSENCE_CONFIRMED_AFTER
from autoscaler.model.catalogue import CapacityType, Rate
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.machines.launch_requests import LaunchRequest, LaunchRequestState
from autoscaler.model.machines.machine import Machine, MachineState
from lab.ec2.instances import Instance, Pool
from lab.ec2.moto import MotoProcess
from lab.ec2.throttling import RequestLimits
from lab.github.records import Job as PushedJob
from lab.laboratory import LabFleet, Laboratory
from tests.lab.system.harness import (
    CALL_TAG,
    SKU_TAG,
    at_rest,
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

SCALE = 100.0
"""Real seconds; no story takes a third of it."""
SEED = 11
MOST = 12
JOB = 20.0
INF_ON_DEMAND, INF_VCPUS, VCPUS_EACH = "L-1945791B", 20, 8
ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")
SPOT, ON_DEMAND = CapacityType.SPOT, CapacityType.ON_DEMAND


def _option(*instance_types: str, capacity: tuple[CapacityType, ...] = (ON_DEMAND,)) -> Any:
    buying = [capacity_type.value for capacity_type in capacity]
    return {"provider": "lab", "instance_types": list(instance_types), "capacity": buying}


SKUS: dict[str, Any] = {
    "partial": {"on": [_option("g6e.xlarge", capacity=(SPOT, ON_DEMAND))]},
    "stillborn": {"on": [_option("g5.2xlarge"), _option("c7i.2xlarge")]},
    "swallowed": {"on": [_option("g4dn.2xlarge")]},
    "storm": {
        "on": [
            _option("g5.xlarge", "g6.xlarge", capacity=(SPOT, ON_DEMAND)),
            _option("g4dn.xlarge"),
        ],
        "max_machines": MOST,
    },
    "quota": {"on": [_option("inf1.2xlarge")]},
    "paged": {"on": [_option("c7i.xlarge")]},
    "role": {"on": [_option("m7i.2xlarge", capacity=(SPOT, ON_DEMAND))]},
    "addresses": {"on": [_option("m7i.4xlarge")]},
    "volumes": {"on": [_option("m7i.xlarge")]},
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lab(moto: MotoProcess) -> AsyncIterator[Laboratory]:
    """A laboratory with machines of the crowd, whose controller is ready."""
    fleet = LabFleet("acme", ("widgets",), SKUS, scale=yielding(SCALE), most_machines=150)
    async with Laboratory(fleet, moto) as laboratory:
        # Read by the controller when it starts.
        laboratory.ec2.quotas.set(INF_ON_DEMAND, INF_VCPUS)
        laboratory.ec2.faults.pending_late = 7.0
        await laboratory.start_controller()
        yield laboratory


def _pools(instance_types: Iterable[str], *capacity_types: CapacityType) -> list[Pool]:
    return [
        Pool(instance_type, zone, capacity_type)
        for instance_type in instance_types
        for capacity_type in capacity_types
        for zone in ZONES
    ]


def _push(lab: Laboratory, sku: str, count: int, seconds: float = JOB) -> list[PushedJob]:
    first = len(lab.github.jobs)
    return lab.github.push([job(f"{sku}-{first + n}", sku, seconds) for n in range(count)])


def _instances(lab: Laboratory, sku: str) -> list[Instance]:
    return [one for one in lab.ec2.instances if one.tags[SKU_TAG] == sku]


def _calls(lab: Laboratory, sku: str) -> list[LaunchRequest]:
    return [call for call in read_records(lab).calls if call.sku == sku]


def _machines(lab: Laboratory, sku: str) -> list[Machine]:
    return [machine for machine in read_records(lab).machines if machine.sku == sku]


async def _run(lab: Laboratory, jobs: list[PushedJob]) -> None:
    """Return once these jobs have run, each once."""

    def why() -> object:
        return [(one.spec.name, one.status, one.starts) for one in jobs], lab.controller.log_end()

    await until(lambda: all(one.conclusion for one in jobs), PATIENCE, why)
    assert [one.conclusion for one in jobs] == ["success"] * len(jobs)
    assert [len(one.starts) for one in jobs] == [1] * len(jobs)


def _peak(instances: list[Instance]) -> int:
    """Return the largest number at once. At the same moment, a termination counts before a launch."""
    changes = [(one.visible_at, 1) for one in instances]
    changes += [(one.terminated_at, -1) for one in instances if one.terminated_at is not None]
    there = most = 0
    for _, change in sorted(changes):
        there += change
        most = max(most, there)
    return most


@pytest.mark.case(
    "a fleet is partial: the missing machines come from the next capacity type",
    topic="EC2's API",
    source="EC2: instant fleets",
)
async def test_the_rest_of_a_partial_fleet_comes_from_the_next_offering(lab: Laboratory) -> None:
    for pool in _pools(["g6e.xlarge"], SPOT):
        lab.ec2.faults.set_capacity(pool, 2 if pool.zone == ZONES[0] else 0)
    await _run(lab, _push(lab, "partial", 5))
    bought = [one.capacity_type for one in _instances(lab, "partial")]
    assert bought == [SPOT] * 2 + [ON_DEMAND] * 3
    calls = _calls(lab, "partial")
    assert _skipped(calls) == []
    short = [call for call in calls if call.failure is not None]
    assert {call.failure for call in short} == {FailureClass.CAPACITY}
    assert "InsufficientInstanceCapacity" in short[0].reason


@pytest.mark.case(
    "vCPU quotas by family, minus the usage of other machines in the account",
    topic="EC2's API",
    source="EC2: on-demand quotas; EC2: spot quotas",
)
async def test_launches_stay_within_a_quota_that_was_read(lab: Laboratory) -> None:
    await _run(lab, _push(lab, "quota", 5))
    assert _peak(_instances(lab, "quota")) == INF_VCPUS // VCPUS_EACH
    assert {call.failure for call in _calls(lab, "quota")} == {None}


@pytest.mark.case(
    "a machine goes from pending to terminated for lack of capacity: another zone is used",
    topic="EC2's machines",
    source="EC2: StateReason",
)
async def test_a_machine_that_fails_for_lack_of_capacity_is_replaced_elsewhere(
    lab: Laboratory,
) -> None:
    code = "Server.InsufficientInstanceCapacity"
    lab.ec2.faults.fail_starts(9, code, pool=Pool("g5.2xlarge", ZONES[0], ON_DEMAND))
    await _run(lab, _push(lab, "stillborn", 2))
    lab.ec2.faults.fail_starts(0, code)
    dead = [one for one in _instances(lab, "stillborn") if one.running_at is None]
    served = [one for one in _instances(lab, "stillborn") if one.running_at is not None]
    assert {one.zone for one in dead} == {ZONES[0]}
    assert [(one.instance_type, one.zone == ZONES[0]) for one in served] == [
        ("g5.2xlarge", False)
    ] * 2
    reported = {one.placement.provider_id: one for one in _machines(lab, "stillborn")}
    assert {reported[one.id].failure for one in dead} == {FailureClass.CAPACITY}  # type: ignore[index]
    assert all(code in reported[one.id].reason for one in dead)  # type: ignore[index]


@pytest.mark.case(
    "CreateFleet's answer is lost, and a newer image appears: the repeated request is identical "
    "and launches nothing twice",
    topic="EC2's API",
    source="EC2: idempotency",
)
async def test_lost_answers_are_repeated_with_the_same_request(lab: Laboratory) -> None:
    """Five times a newer image appears between the first sending and the repeat."""
    faults, images = lab.ec2.faults, lab.ec2.images
    (image,) = images.named("swallowed-*")
    lost = faults.lost["CreateFleet"]
    for number in range(1, 6):
        faults.lose_answers("CreateFleet", 1, silence=20.0)
        jobs = _push(lab, "swallowed", 2)
        await until(
            lambda n=number: faults.lost["CreateFleet"] == lost + n,  # type: ignore[misc]
            PATIENCE,
            lab.controller.log_end,
        )
        image = images.publish(image, f"swallowed-{number + 1}")
        await _run(lab, jobs)
    repeated = [sent for sent in lab.ec2.sendings.values() if len(sent) > 1]
    assert [len(set(sent)) for sent in repeated] == [1] * 5
    assert lab.ec2.errors["CreateFleet", "IdempotentParameterMismatch"] == 0
    assert len(_instances(lab, "swallowed")) == 10
    attempts = [call.attempts for call in _calls(lab, "swallowed")]
    assert (max(attempts), attempts.count(2)) == (2, 5)
    # Images are looked up again after five minutes: a fresh request takes the newest.
    later = lab.clock.now() + 310.0
    await until(lambda: lab.clock.now() > later, PATIENCE, lab.controller.log_end)
    await _run(lab, _push(lab, "swallowed", 1))
    assert _instances(lab, "swallowed")[-1].specification.image == image


@pytest.mark.case(
    "EC2 throttles while capacity comes and goes: no limit is exceeded, no launch option skipped",
    topic="EC2's API",
    source="EC2: request throttling",
)
async def test_capacity_storms_and_throttling_break_no_cap_and_skip_no_option(
    lab: Laboratory,
) -> None:
    pools = _pools(["g5.xlarge", "g6.xlarge"], SPOT, ON_DEMAND)
    lab.ec2.throttling.limits = RequestLimits(requests={"CreateFleet": Rate(1, 0.02)})
    jobs = _push(lab, "storm", 30)
    chance = random.Random(SEED)
    for _ in range(10):
        for pool in pools:
            lab.ec2.faults.set_capacity(pool, chance.choice((0, 0, 0, 1)), seconds=60.0)
        await lab.clock.sleep(30.0)
    await _run(lab, jobs)
    lab.ec2.throttling.limits = None
    assert lab.ec2.throttling.refused["CreateFleet"] > 0
    assert 1 < _peak(_instances(lab, "storm")) <= MOST
    assert {one.instance_type for one in _instances(lab, "storm")} > {"g4dn.xlarge"}
    assert _skipped(_calls(lab, "storm")) == []


LAUNCH_OPTIONS = [(0, SPOT), (0, ON_DEMAND), (1, ON_DEMAND)]
LONGEST_HOLD = 1800.0


def _skipped(calls: list[LaunchRequest]) -> list[str]:
    """Calls down the launch_options although nothing had failed on the step before them, in words."""
    found = []
    for call in calls:
        step = LAUNCH_OPTIONS.index((call.option, call.capacity_type))
        failed = [
            one
            for one in calls
            if (one.option, one.capacity_type) == LAUNCH_OPTIONS[step - 1]
            and one.failure is FailureClass.CAPACITY
            and one.settled_at is not None
            and one.settled_at <= call.created_at <= one.settled_at + LONGEST_HOLD
        ]
        if step > 0 and not failed:
            found.append(f"call {call.id} for {LAUNCH_OPTIONS[step]} at {call.created_at}")
    return found


@pytest.mark.case(
    "spot's service-linked role is missing: on-demand continues",
    topic="EC2's API",
    source="Karpenter#7998; Karpenter#3413",
)
async def test_without_the_spot_role_on_demand_machines_are_launched(lab: Laboratory) -> None:
    lab.ec2.faults.spot_role = False
    await _run(lab, _push(lab, "role", 2))
    lab.ec2.faults.spot_role = True
    assert [one.capacity_type for one in _instances(lab, "role")] == [ON_DEMAND] * 2
    refused = [call.reason for call in _calls(lab, "role") if call.capacity_type is SPOT]
    assert all("ServiceLinkedRoleCreationNotPermitted" in reason for reason in refused)
    assert refused


@pytest.mark.case(
    "a subnet without free addresses: its zone is on hold, and another subnet of the zone is used",
    topic="EC2's API",
    source="Karpenter pkg/errors",
)
async def test_a_subnet_without_addresses_is_replaced_by_another_zone(lab: Laboratory) -> None:
    subnet = next(one.specification.subnet for one in lab.ec2.instances if one.zone == ZONES[0])
    lab.ec2.faults.set_addresses(subnet.id, 0)
    await _run(lab, _push(lab, "addresses", 2))
    lab.ec2.faults.set_addresses(subnet.id, None)
    assert len(_instances(lab, "addresses")) == 2
    assert ZONES[0] not in {one.zone for one in _instances(lab, "addresses")}


@pytest.mark.case(
    "a machine goes from pending to terminated with Client.VolumeLimitExceeded: the account's "
    "quota is the reason that jobs wait",
    topic="EC2's machines",
    source="EC2: StateReason; pytorch#157009",
)
async def test_a_volume_limit_is_reported_and_waited_for(lab: Laboratory) -> None:
    """The limit is that of the account: no other offering of the provider is tried before the hold ends."""
    code = "Client.VolumeLimitExceeded"
    lab.ec2.faults.fail_starts(1, code, "Volume limit exceeded")
    jobs = _push(lab, "volumes", 1)

    def reported() -> bool:
        return any(
            line["sku"] == "volumes" and code in line["reason"]
            for line in log_lines(lab, "jobs_wait")
        )

    await until(reported, PATIENCE, lab.controller.log_end)
    await _run(lab, jobs)
    dead, served = _instances(lab, "volumes")
    assert (dead.running_at, served.running_at is None) == (None, False)
    machine = next(one for one in _machines(lab, "volumes") if one.placement.provider_id == dead.id)
    assert machine.failure is FailureClass.QUOTA
    assert code in machine.reason


@pytest.mark.case(
    "a page of a list is empty and has a token: the controller reads the next page",
    topic="EC2's API",
    source="EC2: DescribeInstances; boto/boto3#130",
)
async def test_listings_that_begin_with_an_empty_page_are_read_to_their_end(
    lab: Laboratory,
) -> None:
    """Otherwise two such listings would lose a machine, and it would be replaced."""
    lab.ec2.faults.empty_pages("DescribeInstances", 1000)
    jobs = _push(lab, "paged", 2, math.inf)
    await until(lambda: started(jobs), PATIENCE, lab.controller.log_end)
    await _listed(lab)
    later = lab.clock.now() + ABSENCE_CONFIRMED_AFTER
    await until(lambda: lab.clock.now() > later, PATIENCE, lab.controller.log_end)
    await _listed(lab)
    for one in jobs:
        lab.github.end(one)
    await _run(lab, jobs)
    lab.ec2.faults.empty_pages("DescribeInstances", 0)
    assert len(_instances(lab, "paged")) == 2
    assert MachineState.LOST not in {one.state for one in _machines(lab, "paged")}


async def _listed(lab: Laboratory) -> None:
    """Return once the controller has read a list of machines that it began after this call."""
    pages = lab.ec2.calls["DescribeInstances"]
    # Each list has two pages. One list may be half read now, and quotas are read with a list, too.
    await until(
        lambda: lab.ec2.calls["DescribeInstances"] >= pages + 6, PATIENCE, lab.controller.log_end
    )


async def test_no_resource_is_left_and_no_request_was_carried_out_twice(lab: Laboratory) -> None:
    await at_rest(lab, PATIENCE)
    assert lab.wrong_jobs() == []
    assert wrong_slots(lab) == []
    assert wrong_runners(lab) == []
    assert unsettled(lab) == []
    assert {call.state for call in read_records(lab).calls} == {LaunchRequestState.SETTLED}
    assert {one.tags[CALL_TAG] for one in lab.ec2.instances} <= {
        str(call.id) for call in read_records(lab).calls
    }
    assert await lab.controller.terminate() == 0
