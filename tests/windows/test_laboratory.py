"""Windows machines in a laboratory: a real controller, the lab's GitHub and EC2, and the agent under Wine.

Seven machines run at once: three that serve a job, two that misbehave, and two for jobs outside `access`.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
import pytest_asyncio

from autoscaler.model.machines.machine import Machine, MachineState, TerminationReason
from lab.ec2.instances import Instance
from lab.ec2.lifecycle import BY_ITSELF, BY_USER
from lab.github.records import Job
from lab.laboratory import LabFleet, Laboratory
from lab.machines.misbehaving_host import Misdeed
from lab.machines.misbehaviour import Misbehaviour
from tests.lab.system.harness import SKU_TAG, at_rest, ec2_sku, job, log_lines, read_records
from tests.lab.system.pace import PATIENCE, yielding

pytestmark = pytest.mark.asyncio(loop_scope="module")

SCALE = 8.0
"""Lab seconds for one of a quiet host: the runner's task has 120 to begin."""

REBOOTS, STAYS = Misbehaviour.REBOOTS_READY, Misbehaviour.STAYS_ON


def sku(**more: Any) -> dict[str, Any]:
    """A SKU of Windows machines."""
    return ec2_sku("c7i.2xlarge", os="windows", **more)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a laboratory came to. All are by SKU, except `refused`: the controller's log lines."""

    jobs: Mapping[str, list[Job]]
    instances: Mapping[str, list[Instance]]
    machines: Mapping[str, list[Machine]]
    misdeeds: Mapping[str, Misdeed]
    refused: list[dict[str, Any]]
    left: list[str]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def outcome() -> AsyncIterator[Outcome]:
    """Run all machines to their end."""
    skus = {name: sku() for name in ("serves", "reboots", "stays", "closed")}
    fleet = LabFleet(
        "acme",
        ("widgets",),
        skus,
        scale=yielding(SCALE),
        misbehaving={"reboots": (REBOOTS,), "stays": (STAYS,)},
        wine=True,
    )
    async with Laboratory(fleet) as lab:
        await lab.start_controller()
        forked = replace(job("forked", "closed", 20.0), workflow="PR", fork="stranger/widgets")
        wanted = {
            "serves": [job(f"serves-{number}", "serves", 20.0) for number in range(3)],
            "reboots": [job("reboots", "reboots", 20.0)],
            "stays": [job("stays", "stays", 20.0)],
            # GitHub gives the oldest job to the machine that is launched for the other one.
            "closed": [forked, job("admitted", "closed", 20.0)],
        }
        jobs = {name: lab.github.push(made) for name, made in wanted.items()}
        await at_rest(lab, PATIENCE)
        records = read_records(lab)
        instances = {
            name: [one for one in lab.ec2.instances if one.tags[SKU_TAG] == name] for name in skus
        }
        skus_of = {one.id: name for name, made in instances.items() for one in made}
        machines: dict[str, list[Machine]] = {name: [] for name in skus}
        for machine in records.machines:
            machines[skus_of[machine.placement.provider_id or ""]].append(machine)
        yield Outcome(
            jobs,
            instances,
            machines,
            {name: deed for name, (deed,) in lab.misdeeds.items()},
            log_lines(lab, "job_ran_outside_access"),
            lab.left(),
        )


async def test_three_windows_machines_serve_one_job_each_and_power_off(outcome: Outcome) -> None:
    jobs = outcome.jobs["serves"]
    assert [(one.conclusion, len(one.starts), one.stepped) for one in jobs] == [
        ("success", 1, True)
    ] * 3
    assert len({one.starts[0] for one in jobs}) == 3
    instances = outcome.instances["serves"]
    assert [one.reason and one.reason[0] for one in instances] == [BY_ITSELF[0]] * 3
    assert {one.state for one in outcome.machines["serves"]} == {MachineState.TERMINATED}
    assert outcome.left == []


async def test_a_windows_machine_that_reboots_before_its_assignment_serves_its_job(
    outcome: Outcome,
) -> None:
    """As on Linux: a second attestation of the same machine, and no other machine."""
    deed = outcome.misdeeds["reboots"]
    assert (deed.kind, deed.attestations, deed.exits) == (REBOOTS, 2, 1)
    [done], [instance] = outcome.jobs["reboots"], outcome.instances["reboots"]
    assert (done.conclusion, len(done.starts)) == ("success", 1)
    assert instance.reason is not None
    assert instance.reason[0] == BY_ITSELF[0]


async def test_a_windows_machine_that_stays_on_after_its_job_is_terminated(
    outcome: Outcome,
) -> None:
    """As on Linux: two minutes after its exit."""
    deed, [instance], [machine] = (
        outcome.misdeeds["stays"],
        outcome.instances["stays"],
        outcome.machines["stays"],
    )
    assert deed.kind is STAYS
    assert deed.at is not None
    assert instance.ended_at is not None
    assert instance.ended_at - deed.at >= 120.0
    assert instance.reason is not None
    assert instance.reason[0] == BY_USER[0]
    assert machine.termination.reason is TerminationReason.EXITED
    assert [one.conclusion for one in outcome.jobs["stays"]] == ["success"]


async def test_a_job_of_a_fork_runs_no_step_on_windows(outcome: Outcome) -> None:
    """The hook kills the worker (taskkill), and the listener reports that the job failed."""
    forked, admitted = outcome.jobs["closed"]
    assert (forked.conclusion, forked.stepped) == ("failure", False)
    assert (admitted.conclusion, admitted.stepped) == ("success", True)
    assert [line["detail"].partition(":")[0] for line in outcome.refused] == ["fork"]
