"""What the metrics get: the counts of the fleet, and each history row once."""

import asyncio
from dataclasses import replace

from structlog.testing import capture_logs

from autoscaler.controller.ports.provider import ProviderError
from autoscaler.controller.reporting.fleet_counts import fleet_counts
from autoscaler.controller.system import RandomIds, SystemClock
from autoscaler.model.events import JobObserved, MachineNoticed
from autoscaler.model.identifiers import JobId
from autoscaler.model.jobs.job import JobState
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.machines.interruptions import NoticeKind
from autoscaler.model.machines.machine import TerminationReason
from autoscaler.model.reasons.table import WaitCode
from tests.controller.agents import launched, queue, say
from tests.controller.controllers import Controller, World
from tests.controller.virtual_time import on_virtual_time
from tests.ledger.builders import World as Ledger
from tests.ledger.test_holds import held_jobs, leaves_idle
from tests.planner.fleets import EAST


@on_virtual_time
async def test_no_sku_of_a_new_fleet_has_an_open_circuit_breaker() -> None:
    controller = Controller(World())
    assert fleet_counts(controller.state, controller.journal.now).circuits_open == ()


@on_virtual_time
async def test_completed_jobs_are_counted_by_conclusion() -> None:
    controller, (agent,) = await launched(World())
    assigned = await agent.start_runner()
    await say(controller, 1, JobState.IN_PROGRESS, assigned.runner)
    job, now = controller.state.jobs[JobId(1)], controller.journal.now
    done = JobObserved(now, job.id, JobState.COMPLETED, job.repository, job.labels, job.queued_at)
    await controller.journal.record(replace(done, conclusion="failure", completed_at=now))
    said = [word for word in controller.world.telemetry.said if word[0] == "job_completed"]
    assert said == [("job_completed", "gpu", "failure")]


@on_virtual_time
async def test_an_interruption_is_counted_once_whatever_else_happens_to_the_machine() -> None:
    world = World()
    controller, (agent,) = await launched(world)
    await agent.start_runner()
    machine, now = controller.only_machine(), controller.journal.now
    assert machine.placement.provider_id is not None
    await controller.journal.record(
        MachineNoticed(now, EAST, machine.placement.provider_id, NoticeKind.SPOT_INTERRUPTION, now)
    )
    await agent.exit("it left")
    world.east.shut_down(machine.placement.provider_id)
    await controller.machine_lists.list_machines(EAST)
    await controller.turn()
    counted = [word for word in world.telemetry.said if word[0] == "machine_interrupted"]
    assert counted == [("machine_interrupted", "gpu", NoticeKind.SPOT_INTERRUPTION)]


@on_virtual_time
async def test_disputed_jobs_wait_beside_the_others_of_their_sku() -> None:
    controller = Controller(World())
    await controller.resume()
    await queue(controller, 1)
    await queue(controller, 2)
    await say(controller, 2, JobState.WAITING)
    await say(controller, 2, JobState.QUEUED)
    await controller.intake.apply_waiting()
    assert controller.state.jobs[JobId(2)].disputed
    assert fleet_counts(controller.state, controller.journal.now).jobs_waiting == {"gpu": 2}


def test_jobs_on_hold_wait_beside_the_others_of_their_sku() -> None:
    world = Ledger()
    world.queue(1)
    for name in ("a", "b"):
        leaves_idle(world, name)
    world.observe(2, JobState.QUEUED, repository="acme/other")
    assert held_jobs(world) == [1]
    assert fleet_counts(world.state, world.now).jobs_waiting == {"gpu": 2}


@on_virtual_time
async def test_a_clock_that_runs_faster_sleeps_for_less_time() -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    await SystemClock(scale=60.0).sleep(120.0)
    assert loop.time() - began == 2.0


def test_ids_are_random_and_as_long_as_they_should_be() -> None:
    ids = RandomIds()
    assert {len(ids.machine()), len(ids.launch_request())} == {16}
    assert (
        len({ids.launch_request() for _ in range(20)} | {str(ids.machine()) for _ in range(20)})
        == 40
    )
    assert len(ids.token()) == 32


@on_virtual_time
async def test_waiting_jobs_are_counted_by_the_reasons_of_the_last_plan() -> None:
    world = World()
    controller = Controller(world)
    await controller.resume()
    await queue(controller, 1)
    await controller.turn()
    assert world.telemetry.counts.waiting_reasons == {("gpu", WaitCode.LAUNCH_PLANNED): 1}
    await controller.turn()
    assert world.telemetry.counts.waiting_reasons == {("gpu", WaitCode.MACHINE_BOOTING): 1}


@on_virtual_time
async def test_refused_launches_and_ends_of_machines_are_logged_and_counted_by_code() -> None:
    world = World()
    controller, (agent,) = await launched(world)
    await agent.start_runner()
    machine = controller.only_machine()
    await agent.exit("status 0")
    assert machine.placement.provider_id is not None
    world.east.shut_down(machine.placement.provider_id)
    with capture_logs() as logs:
        await controller.machine_lists.list_machines(EAST)
        world.east.launch_script.append(
            ProviderError(FailureClass.QUOTA, "VcpuLimitExceeded", "no more")
        )
        await queue(controller, 2)
        await controller.turn()
    (ended,) = [line for line in logs if line["event"] == "machine_terminated"]
    assert (ended["machine"], ended["sku"]) == (machine.id, "gpu")
    assert ended["code"] == "powered_off"
    rows = await world.store.history("machine", machine.id)
    assert ended["reason"] == next(row.detail for row in rows if row.code == "powered_off")
    assert ("machine_terminated", "gpu", TerminationReason.POWERED_OFF) in world.telemetry.said
    (refused,) = [line for line in logs if line["event"] == "launch_failed"]
    assert (refused["sku"], refused["provider"], refused["code"]) == ("gpu", EAST, "quota")
    assert "VcpuLimitExceeded: no more" in refused["reason"]
    assert ("launch_failures", "gpu", FailureClass.QUOTA) in world.telemetry.said
