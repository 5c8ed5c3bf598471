"""Without any webhook every job runs: the controller reads GitHub's lists within a budget of calls."""

import asyncio

import pytest

from lab.ec2.moto import MotoProcess
from lab.github.settings import DeliveryFaults, Limits
from lab.laboratory import LabFleet, Laboratory
from tests.lab.system.harness import at_rest, ec2_sku, job, read_records, until
from tests.lab.system.pace import PATIENCE, yielding

pytestmark = pytest.mark.asyncio

SCALE = 30.0
LOOKS = 3
"""Maximum number of lists of a repository's runs before machines for all its jobs are requested.

One list shows the run, and a busy host may read another or two before it has read the run's jobs. On virtual
time, `tests/controller/test_healing.py` shows that this takes a minute at most.
"""
WORK = 30.0
"""Lab seconds: a job may be over, and its machine gone, before any list has shown it running. GitHub is
asked about it then, before anything is launched for it again."""

LIST = "GET /repos/{owner}/{repo}/actions/runs"


@pytest.mark.case(
    "a `queued` webhook is lost, and no log shows it as failed",
    topic="GitHub's events",
    source="ARC#2788",
)
@pytest.mark.case(
    "a job is completed and its machine gone before the webhook of its start: no second machine "
    "is launched",
    topic="GitHub's events",
    source="GitHub: failed deliveries",
)
async def test_without_webhooks_every_job_gets_a_machine_at_the_next_list_and_runs_once(
    moto: MotoProcess,
) -> None:
    fleet = LabFleet(
        "acme",
        ("widgets", "gadgets"),
        {"gpu": ec2_sku("g5.xlarge")},
        scale=yielding(SCALE),
        limits=Limits(requests_per_hour=15_000),
        faults=DeliveryFaults(drop=1.0),
    )
    async with Laboratory(fleet, moto) as lab:
        await lab.start_controller()
        await asyncio.sleep(20.0 / lab.fleet.scale)
        before = _looks(lab)
        for repository in fleet.repositories:
            name = f"acme/{repository}"
            lab.github.push([job(f"{repository} {n}", "gpu", WORK, name) for n in range(4)])
        (cancelled,) = lab.github.push([job("cancelled", "gpu", WORK)])
        lab.github.cancel(cancelled)
        await until(lambda: len(lab.ec2.instances) == 8, PATIENCE, lab.controller.log_end)
        assert _looks(lab) - before <= LOOKS * len(fleet.repositories)
        await at_rest(lab, PATIENCE)
        assert lab.wrong_jobs() == []
        assert lab.github.deliveries["ok"] == 0
        records = read_records(lab)
        assert len(records.machines) == 8, records
        # Nothing changes any more: the next look at the lists costs nothing.
        await until(lambda: lab.github.calls[LIST, 304] > 0, PATIENCE, lab.controller.log_end)
        assert not [route for route, status in lab.github.calls if status in (403, 429)]


def _looks(lab: Laboratory) -> int:
    """Return how often runs were listed so far."""
    return lab.github.calls[LIST, 200] + lab.github.calls[LIST, 304]
