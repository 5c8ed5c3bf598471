"""Machines that spot takes back, in a whole laboratory.

With notice and without, at work and ready, with a proper shutdown and as if the host had failed.
"""

from dataclasses import replace

import pytest

from autoscaler.model.machines.interruptions import NoticeKind
from autoscaler.model.machines.machine import ExitReason, Machine, MachineState, TerminationReason
from lab.ec2.instances import Instance, InstanceState
from lab.ec2.moto import MotoProcess
from lab.laboratory import LabFleet, Laboratory
from tests.lab.system.harness import (
    SKU_TAG,
    ec2_sku,
    job,
    log_lines,
    read_records,
    shows,
    started,
    until,
)
from tests.lab.system.pace import PATIENCE, yielding

SKUS = {
    "again": ec2_sku("g5.xlarge", rerun_interrupted=1),
    "quiet": ec2_sku("g6.xlarge", rerun_interrupted=1),
    "gone": ec2_sku("g6.2xlarge", rerun_interrupted=1),
    "off": ec2_sku("g4dn.xlarge"),
    "warm": ec2_sku("g4dn.2xlarge", idle={"min": 1}),
}


def alive(lab: Laboratory, sku: str) -> list[Instance]:
    up = (InstanceState.PENDING, InstanceState.RUNNING)
    return [one for one in lab.ec2.instances if one.tags[SKU_TAG] == sku and one.state in up]


def machines(lab: Laboratory, sku: str) -> list[Machine]:
    return [machine for machine in read_records(lab).machines if machine.sku == sku]


def runs_of(lab: Laboratory, sku: str) -> list[str | None]:
    """The conclusions of the tries at a SKU's job, in order."""
    return [one.conclusion for one in lab.github.jobs if one.spec.name == sku]


@pytest.mark.case(
    "a rebalance recommendation",
    topic="EC2's machines",
    source="EC2: rebalance recommendations",
)
@pytest.mark.case(
    "spot is interrupted without any notice",
    topic="EC2's machines",
    source="EC2: spot interruption notices",
)
@pytest.mark.case(
    "a job that its machine's interruption killed is re-run, and no other",
    topic="EC2's machines",
    source="runs-on#259; runs-on#411",
)
@pytest.mark.case(
    "the operating system of an interrupted spot machine stops the agent: the runner reports a "
    "failure, the agent reports `stopped`, and the job is re-run",
    topic="EC2's machines",
    source="actions/runner#1792; EC2: how termination works",
)
async def test_interrupted_machines_are_replaced_and_their_jobs_are_rerun(
    moto: MotoProcess,
) -> None:
    fleet = LabFleet("acme", ("widgets",), SKUS, scale=yielding(60.0))
    async with Laboratory(fleet, moto) as lab:
        await lab.start_controller()
        names = ("again", "quiet", "gone", "off")
        # Each in a run of its own, or a run's other jobs would be waited for.
        pushed = lab.github.push([replace(job(sku, sku, 86_400.0), workflow=sku) for sku in names])
        lab.ec2.events.send("{not an event}")
        await until(lambda: started(pushed), PATIENCE, lab.controller.log_end)
        await until(
            lambda: [one.state for one in machines(lab, "warm")] == [MachineState.READY],
            PATIENCE,
            lab.controller.log_end,
        )
        ready = alive(lab, "warm")[0]
        lab.ec2.events.rebalance(ready.id)
        for sku in names:
            one = alive(lab, sku)[0].id
            lab.ec2.interrupt(one, notice=sku != "quiet", properly=sku != "gone")

        def replaced() -> bool:
            return [one.id for one in alive(lab, "warm") if one is not ready] != []

        def again() -> bool:
            return all(runs_of(lab, sku)[:1] == ["failure"] for sku in names) and started(
                [one for one in lab.github.jobs if one.spec.name != "off"]
            )

        await until(replaced, PATIENCE, lab.controller.log_end)
        await until(lambda: again() and len(lab.github.jobs) == 7, PATIENCE, lab.controller.log_end)
        assert [len(runs_of(lab, sku)) for sku in names] == [2, 2, 2, 1]
        (first,) = (one for one in machines(lab, "warm") if one.placement.provider_id == ready.id)
        assert first.termination.reason is TerminationReason.INTERRUPTED
        assert first.interruption.kind is NoticeKind.REBALANCE_RECOMMENDATION
        (taken,) = (one for one in machines(lab, "quiet") if one.interruption.taken_at is not None)
        stopped = [
            one.work.exit_reason
            for one in machines(lab, "again")
            if one.interruption.taken_at is not None
        ]
        assert stopped == [ExitReason.STOPPED]
        assert taken.interruption.kind is NoticeKind.SPOT_INTERRUPTION
        (poison,) = log_lines(lab, "notice_discarded")
        assert poison["excerpt"] == "{not an event}"
        await until(lambda: len(lab.ec2.events) == 0, PATIENCE, lab.controller.log_end)
        counted = (
            'autoscaler_notices_total{kind="poison",provider="lab"}',
            'autoscaler_machines_interrupted_total{kind="spot_interruption",sku="quiet"}',
            'autoscaler_jobs_interrupted_total{outcome="accepted",sku="again"}',
            'autoscaler_jobs_interrupted_total{outcome="off",sku="off"}',
        )
        await shows(lab, dict.fromkeys(counted, 1), PATIENCE)
