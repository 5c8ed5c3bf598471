"""A machine is quarantined at each stage of its life, with and without a runner, in the simulated world."""

import pytest

from autoscaler.controller.ports.operator_requests import OperatorRequestRefusedError
from autoscaler.model.catalogue import IdlePolicy, ScheduledMinimum
from autoscaler.model.identifiers import JobId, MachineId, Seconds
from autoscaler.model.machines.machine import Machine, MachineState
from autoscaler.simulator.world.instances import POWERED_OFF, Instance
from autoscaler.simulator.world.jobs import SimulatedJob
from autoscaler.simulator.world.schedule import Fault, FaultKind
from tests.views.situations import OPERATOR, Situation, job, one_sku, situation

pytestmark = pytest.mark.systems

REGISTERS_AT = 45.885
"""When the runner of the first machine is named: 40 seconds after the machine was requested."""

WHY = (
    "it has a runner, and powers itself off after the job; inspect it while the job runs, or "
    "quarantine another machine before it has a runner"
)

WARM = one_sku(idle=IdlePolicy(schedule=(ScheduledMinimum("0 8 * * *", "UTC", 5400.0, 1),)))
"""One machine is ready until half past nine. The world begins at eight."""


async def refusal(it: Situation, machine: MachineId) -> str:
    """Quarantine a machine. Return why the controller refuses; empty if it does not."""
    process = it.world.supervisor.current()
    try:
        await process.serve(it.controller.operator_holds.quarantine(machine, by=OPERATOR))
    except OperatorRequestRefusedError as refused:
        return refused.reason
    return ""


async def resumed(it: Situation, machine: MachineId) -> None:
    process = it.world.supervisor.current()
    await process.serve(it.controller.operator_holds.resume(machine, by=OPERATOR))


def first_machine(it: Situation) -> Machine:
    return min(it.controller.journal.ledger.state.machines.values(), key=lambda one: one.id)


def instance_of(it: Situation, machine: Machine) -> Instance:
    instances = it.world.providers[machine.provider].instances
    [found] = [one for one in instances.values() if one.id == machine.placement.provider_id]
    return found


def job_of(it: Situation, number: int) -> SimulatedJob:
    return it.world.actions.jobs[JobId(number)]


def runs_on(it: Situation, number: int) -> MachineId | None:
    """Return the machine whose runner got a job."""
    [activity] = [
        one
        for one in it.world.machines.activities
        if one.registration is not None and one.registration.job is job_of(it, number)
    ]
    return activity.machine


@situation(job(1, at=300.0), job(2, at=650.0), catalogue=WARM, lists=True)
async def test_a_ready_machine_is_kept_without_a_job_until_it_is_resumed(it: Situation) -> None:
    await it.at(100.0)
    kept = first_machine(it)
    assert kept.state is MachineState.READY
    assert not await refusal(it, kept.id)
    await it.at(600.0)
    assert runs_on(it, 1) != kept.id
    assert (kept.state, instance_of(it, kept).ended_at) == (MachineState.READY, None)
    # Another machine is ready in its place. It goes, so that the resumed one gets the next job.
    [other] = [
        one.id
        for one in it.controller.journal.ledger.state.machines.values()
        if one.state is MachineState.READY and one is not kept
    ]
    assert not await refusal(it, other)
    await resumed(it, kept.id)
    await it.at(720.0)
    assert runs_on(it, 2) == kept.id
    await resumed(it, other)


@situation(job(), Fault(0.0, FaultKind.HANDED_OUT_LATE, 60.0, target=80), lists=True)
async def test_a_machine_whose_idle_runner_is_registered_gets_its_job(it: Situation) -> None:
    """GitHub may give the runner a job at any moment, so the machine cannot be kept from it."""
    await it.at(60.0)
    machine = first_machine(it)
    assert machine.state is MachineState.ASSIGNED
    assert it.started(1) is None
    assert (await refusal(it, machine.id)).endswith(WHY)
    await it.at(300.0)
    assert (job_of(it, 1).conclusion, runs_on(it, 1)) == ("success", machine.id)
    assert instance_of(it, machine).reason == POWERED_OFF


@situation(job(works=600.0), lists=True)
async def test_a_running_job_ends_as_if_no_quarantine_was_asked_for(it: Situation) -> None:
    await it.at(100.0)
    machine = first_machine(it)
    assert (await refusal(it, machine.id)).endswith(WHY)
    assert it.controller.journal.ledger.state.operator_holds == {}
    await it.at(700.0)
    assert job_of(it, 1).conclusion == "success"
    assert instance_of(it, machine).reason == POWERED_OFF


MOMENTS = (
    *(45.6, 45.86, 45.88, 45.89, 45.93, 45.98, 46.03, 46.08, 46.09, 47.0),
    *(49.06, 49.1, 49.2, 109.06, 109.12, 117.0),
)
"""Around the steps of the first machine: named, registered, listening, busy, done, exited."""


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_machine_is_kept_or_runs_its_job_whenever_it_is_quarantined(moment: Seconds) -> None:
    """Around each step of the registration: never both, and never neither."""

    @situation(job(1), job(2, at=130.0), lists=True)
    async def story(it: Situation) -> None:
        await it.at(moment)
        machine = first_machine(it)
        reason = await refusal(it, machine.id)
        kept = moment < REGISTERS_AT
        assert reason.endswith(WHY) is not kept, reason
        await it.at(350.0)
        assert (job_of(it, 1).conclusion, job_of(it, 2).conclusion) == ("success", "success")
        assert (runs_on(it, 1) == machine.id) is not kept
        assert (instance_of(it, machine).ended_at is None) is kept
        if kept:
            await resumed(it, machine.id)

    story()
