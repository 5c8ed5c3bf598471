"""A thousand jobs at once for one SKU: how few calls that takes, and how GitHub's limits are kept."""

from bisect import bisect_left, bisect_right

import pytest

from autoscaler.model.catalogue import RegistrationRate
from lab.github.settings import DeliveryFaults, Limits
from lab.laboratory import LabFleet, Laboratory
from tests.lab.system.harness import (
    Records,
    at_rest,
    ec2_sku,
    github_calls,
    job,
    read_records,
    started,
    unsettled,
    until,
    wrong_runners,
    wrong_slots,
)
from tests.lab.system.pace import PATIENCE, yielding

pytestmark = pytest.mark.whole_host

SKU = "linux.g5"
AS_SHIPPED = {
    "burst": RegistrationRate().burst,
    "per_second": RegistrationRate().per_second,
}
REGISTER = "POST /orgs/{org}/actions/runners/generate-jitconfig"
LOOKS_A_MINUTE = 25.0
"""GitHub's lists and deliveries are read by the clock, and a busy host takes longer for the jobs."""

MOST_BEFORE = int(120.0 * RegistrationRate().per_second)
"""Maximum number of machines that register while a ready one waits for its turn: those of two minutes.

On a busy host the waits take longer, but no other machine registers meanwhile. On virtual time,
`test_registration_long.py` bounds the waits themselves.
"""


async def _run(lab: Laboratory, jobs: int, seconds: float) -> None:
    await lab.start_controller()
    pushed = lab.github.push([job(f"j{n}", SKU, seconds) for n in range(jobs)])
    await until(lambda: not lab.github.unfinished, PATIENCE, lab.controller.log_end)
    assert started(pushed)


async def _ended_well(lab: Laboratory) -> None:
    await at_rest(lab, PATIENCE)
    assert await lab.controller.terminate() == 0
    assert lab.wrong_jobs() == []
    assert wrong_slots(lab) == []
    assert wrong_runners(lab) == []
    assert unsettled(lab) == []


def _most_before(records: Records) -> int:
    """Return the largest number of runners that were named while one ready machine waited for its own."""
    ready = {machine.id: machine.progress.ready_at for machine in records.machines}
    named = sorted(runner.named_at for runner in records.runners)
    found = 0
    for runner in records.runners:
        at = ready[runner.machine]
        assert at is not None
        found = max(found, bisect_left(named, runner.named_at) - bisect_right(named, at))
    return found


@pytest.mark.case(
    "minutes pass before a job is seen; each machine of a burst takes seconds",
    topic="Complaints about other fleets",
    source="GARM#270; GAR#3824",
)
async def test_without_limits_a_thousand_jobs_need_few_calls() -> None:
    fleet = LabFleet(
        "acme",
        ("widgets",),
        {SKU: ec2_sku("g5.xlarge")},
        # Not faster: where a busy host takes three lab minutes to start a runner that has its
        # assignment, it is no supply any more, and another machine is launched for its job.
        scale=yielding(6.0),
        most_machines=1000,
    )
    async with Laboratory(fleet) as lab:
        began = lab.clock.now()
        await _run(lab, 1000, 20.0)
        minutes = (lab.clock.now() - began) / 60.0
        assert lab.ec2.calls["CreateFleet"] <= 5
        assert lab.github.calls[REGISTER, 201] <= 1000
        # Two minutes, on an idle host: 1.1 calls a job.
        allowed = 1.05 * 1000 + LOOKS_A_MINUTE * max(2.0, minutes)
        assert github_calls(lab).total() <= allowed, lab.github.calls
        await _ended_well(lab)


@pytest.mark.case(
    "a flood of deliveries, some of them malformed",
    topic="GitHub's events",
    source="GitHub: using webhooks",
)
async def test_within_githubs_limits_and_with_bad_deliveries_no_machine_waits_long() -> None:
    """A fifth of the deliveries fails at first, a fifth is repeated, a fifth is late."""
    fleet = LabFleet(
        "acme",
        ("widgets",),
        # Where `in_progress` fails and the job is over before it is repeated, a machine is launched
        # in vain; it is not to be waited for long.
        {SKU: ec2_sku("g5.xlarge", idle={"timeout": "60s"})},
        # Not faster: the controller plans once a real second under load, and must not let more
        # turns to register go by meanwhile than the burst holds.
        scale=yielding(18.0),
        most_machines=1000,
        limits=Limits(),
        registrations=AS_SHIPPED,
        faults=DeliveryFaults(fail=0.2, duplicate=0.2, reorder=0.2),
    )
    async with Laboratory(fleet) as lab:
        await _run(lab, 1000, 60.0)
        calls = github_calls(lab)
        assert calls["403"] + calls["429"] < 0.01 * calls.total(), lab.github.calls
        # About 600 failed. The controller asks for 50 at each look, so the last ones may still wait.
        assert lab.github.deliveries["redelivered"] > 200
        await _ended_well(lab)
        assert _most_before(read_records(lab)) <= MOST_BEFORE
