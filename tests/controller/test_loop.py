"""The reconciler: it batches changes, stops cleanly, ends if its store fails, and resumes."""

import asyncio
from dataclasses import replace
from itertools import pairwise

import pytest
from structlog.testing import capture_logs

from autoscaler.controller.ports.store import StoreError
from autoscaler.controller.reconciler import failure_of
from autoscaler.model.catalogue import LaunchRate, Rate
from autoscaler.model.events import RunnersListed
from autoscaler.model.identifiers import Instant, JobId
from autoscaler.model.jobs.job import JobState
from autoscaler.model.machines.evidence import SHOWN_AT_GITHUB_WITHIN
from autoscaler.model.machines.launch_requests import LaunchRequest, LaunchRequestState
from autoscaler.model.machines.machine import Machine, MachineState
from tests.controller.agents import Agent, launched, queue, say
from tests.controller.controllers import Controller, World
from tests.controller.virtual_time import EPOCH, VirtualClock, on_virtual_time
from tests.planner.fleets import EAST, catalogue, sku


async def started(world: World) -> Controller:
    controller = Controller(world)
    controller.start()
    await asyncio.sleep(1.0)
    return controller


@pytest.mark.case(
    "jobs that arrive together share a launch request, of up to 1,000 machines",
    topic="EC2's API",
    source="Karpenter pkg/batcher",
)
@on_virtual_time
async def test_jobs_that_come_together_are_launched_together() -> None:
    world = World()
    controller = await started(world)
    for job in range(1, 31):
        await queue(controller, job)
        await asyncio.sleep(0.01)
    await asyncio.sleep(5.0)
    assert len(world.east.prepared) <= 2
    assert len(world.east.running) == 30
    await controller.stop()


@on_virtual_time
async def test_jobs_with_short_pauses_between_them_are_launched_together() -> None:
    world = World()
    controller = await started(world)
    for group in range(4):
        for job in range(10):
            await queue(controller, 10 * group + job + 1)
        await asyncio.sleep(0.1)
    await asyncio.sleep(5.0)
    assert len(world.east.prepared) == 1
    assert len(world.east.running) == 40
    await controller.stop()


@on_virtual_time
async def test_a_constant_stream_of_changes_delays_a_plan_for_at_most_a_second() -> None:
    world = World()
    controller = await started(world)
    began = world.clock.now()
    while not world.east.prepared:
        await queue(controller, len(world.store.inbox) + 1)
        await asyncio.sleep(0.02)
    assert world.clock.now() - began < 1.5
    await controller.stop()


@pytest.mark.case(
    "minutes pass before a job is seen; each machine of a burst takes seconds",
    topic="Complaints about other fleets",
    source="GARM#270; GAR#3824",
)
@on_virtual_time
async def test_a_single_job_is_planned_at_once_despite_other_deliveries() -> None:
    world = World()
    controller = await started(world)
    for job in range(100, 120):
        await say(controller, job, JobState.COMPLETED)
        await asyncio.sleep(0.004)
    began = world.clock.now()
    await queue(controller, 1)
    for job in range(200, 240):
        await say(controller, job, JobState.COMPLETED)
        await asyncio.sleep(0.004)
    await asyncio.sleep(1.0)
    (call,) = world.store.of_kind(LaunchRequest)
    assert call.created_at - began < 0.1
    await controller.stop()


@on_virtual_time
async def test_a_launch_that_waits_for_the_launch_rate_is_sent_as_soon_as_possible() -> None:
    known = catalogue(sku("a"), sku("b"))
    world = World(replace(known, launch_rates={EAST: LaunchRate(Rate(1, 1 / 0.7))}))
    controller = await started(world)
    for job in range(1, 13):
        await say(controller, job, JobState.QUEUED, labels=("a" if job % 2 else "b",))
        await asyncio.sleep(0.11)
    await asyncio.sleep(5.0)
    calls = world.store.of_kind(LaunchRequest)
    assert sum(len(call.slots) for call in calls) == 12
    waits = [later.created_at - call.created_at for call, later in pairwise(calls)]
    assert waits == pytest.approx([0.7] * 3, abs=0.01)
    await controller.stop()


@on_virtual_time
async def test_a_reason_that_comes_and_goes_is_reported_once_a_minute() -> None:
    world = World(
        replace(catalogue(sku("a"), sku("b")), launch_rates={EAST: LaunchRate(Rate(1, 2.0))})
    )
    controller = await started(world)
    with capture_logs() as logs:
        for job in range(1, 41):
            await say(controller, job, JobState.QUEUED, labels=("a" if job % 2 else "b",))
            await asyncio.sleep(0.2)
    assert len([line for line in logs if line["event"] == "jobs_wait"]) == 2, "one for each SKU"
    await controller.stop()


class StandingClock(VirtualClock):
    """A clock that was set back: it stands still until it reaches its earlier time again."""

    def now(self) -> Instant:
        return EPOCH


@pytest.mark.case(
    "the host's clock jumps forward, is set back, and stands still until it has caught up",
    topic="EC2's machines",
    source="Python: time.time",
)
@on_virtual_time
async def test_the_loop_continues_after_the_clock_was_set_back() -> None:
    world = World(clock=StandingClock())
    controller = await started(world)
    for job in range(1, 4):
        await queue(controller, job)
    await asyncio.sleep(5.0)
    assert len(world.east.running) == 3
    assert controller.running is not None
    assert not controller.running.done()
    await controller.stop()


@on_virtual_time
async def test_without_changes_the_loop_plans_at_every_tick() -> None:
    world = World()
    controller = await started(world)
    before = world.telemetry.passes
    await asyncio.sleep(100.0)
    assert 48 <= world.telemetry.passes - before <= 70
    assert controller.loop.turned_at == pytest.approx(world.clock.now(), abs=2.1)
    await controller.stop()


@on_virtual_time
async def test_stopping_finishes_requests_in_flight_and_leaves_no_task() -> None:
    world = World()
    world.east.latency = 20.0
    before = asyncio.all_tasks()
    controller = await started(world)
    await queue(controller, 1)
    await asyncio.sleep(25.0)
    assert len(world.east.sent) == 1, "sent, and not answered yet"
    await queue(controller, 2)
    await controller.stop()
    assert asyncio.all_tasks() == before
    assert {m.state for m in world.store.of_kind(Machine)} == {MachineState.LAUNCHED}
    assert world.store.applied == set(world.store.inbox), "what was accepted is applied"
    assert controller.crashes == []


@on_virtual_time
async def test_requests_that_do_not_finish_at_a_stop_are_cancelled_and_resumed_after_the_restart() -> (
    None
):
    world = World()
    world.east.latency = 200.0
    controller = await started(world)
    await queue(controller, 1)
    await asyncio.sleep(201.0 + 10.0)
    with capture_logs() as logs:
        await controller.stop()
    assert [one["count"] for one in logs if one["event"] == "requests_cancelled"] == [1]
    (call,) = world.store.of_kind(LaunchRequest)
    assert call.state is LaunchRequestState.SENT
    world.east.latency = 0.5
    successor = await started(world)
    await asyncio.sleep(60.0)
    assert len(world.east.running) == 1
    assert successor.only_machine().state is MachineState.LAUNCHED
    await successor.stop()


@pytest.mark.parametrize("where", ["turn", "watching", "effect"])
@on_virtual_time
async def test_a_store_error_ends_the_loop(where: str) -> None:
    world = World()
    if where == "effect":
        world.east.latency = 5.05
    controller = await started(world)
    assert controller.running is not None
    if where == "turn":
        await queue(controller, 1)
    if where == "effect":
        await queue(controller, 1)
        await asyncio.sleep(5.0)  # the next write is that of the prepared launch request
    world.store.failure = StoreError("disk full")
    with pytest.raises(StoreError) as failed:
        await asyncio.wait_for(controller.running, 60.0)
    assert failure_of(failed.value) == "the store failed: disk full"
    assert bool(controller.crashes) is (where == "effect")
    assert world.east.sent == []


@on_virtual_time
async def test_nothing_is_written_after_a_failed_write() -> None:
    """The store may work again a moment later, but the ledger already has changes that it lacks."""
    world = World()
    controller, (agent,) = await launched(world)
    world.store.failure = StoreError("disk full")
    with pytest.raises(StoreError):
        await agent.attest()
    world.store.failure = None
    kept = len(world.store.commits)
    with pytest.raises(StoreError):
        await agent.attest()
    with pytest.raises(StoreError):
        await controller.loop.turn()
    assert len(world.store.commits) == kept


@on_virtual_time
async def test_an_unexpected_error_of_a_request_stops_the_loop_and_is_reported() -> None:
    world = World()

    def fail(_: str) -> None:
        raise ZeroDivisionError

    world.east.on_launch = fail
    controller = await started(world)
    assert controller.running is not None
    await queue(controller, 1)
    await asyncio.wait_for(controller.running, 60.0)
    assert [type(error) for error in controller.crashes] == [ZeroDivisionError]


@on_virtual_time
async def test_the_next_process_starts_with_the_records_of_the_store() -> None:
    world = World()
    controller, agents = await launched(world, 3)
    assigned = await agents[0].start_runner()
    await agents[1].make_ready()
    await controller.turn()
    await say(controller, 1, JobState.IN_PROGRESS, assigned.runner)
    await controller.turn()
    before = controller.state
    await controller.kill()

    successor = Controller(world)
    await successor.resume()
    assert successor.state.jobs == before.jobs
    assert successor.state.launch_requests == before.launch_requests
    assert {m.id: m.state for m in successor.state.machines.values()} == {
        m.id: m.state for m in before.machines.values()
    }
    assert successor.state.machines_used == before.machines_used
    assert successor.state.used_by_quota == before.used_by_quota
    await successor.turn()
    assert len(world.east.running) == 3, "nothing is launched again"


@on_virtual_time
async def test_stored_deliveries_that_were_not_applied_are_applied_by_the_next_process() -> None:
    world = World()
    controller = Controller(world)
    await controller.resume()
    await queue(controller, 1)
    await controller.kill()
    assert world.store.applied == set()
    successor = Controller(world)
    await successor.resume()
    await successor.turn()
    assert set(successor.state.jobs) == {JobId(1)}
    assert world.store.applied == set(world.store.inbox)


@on_virtual_time
async def test_after_a_start_a_ready_machine_is_assigned_only_after_a_poll() -> None:
    world = World()
    controller, (agent,) = await launched(world)
    await say(controller, 1, JobState.COMPLETED)
    await agent.make_ready()
    await controller.kill()
    successor = Controller(world)
    await successor.resume()
    agent.controller = successor
    await queue(successor, 2)
    await successor.turn()
    assert world.github.registered == [], "not assigned on the word of a table"
    assert len(world.east.running) == 1, "and believed for a while before another is launched"
    assert await agent.poll(wait=0.0) is None
    await successor.turn()
    assigned = await agent.take_assignment()
    assert world.github.registered == [assigned.runner]


@pytest.mark.case(
    "the controller's process ends with the secret of a registration in its memory",
    topic="EC2's machines",
    source="ubicloud#692",
)
@on_virtual_time
async def test_a_registration_whose_jit_configuration_was_lost_in_a_restart_is_replaced() -> None:
    world = World()
    controller, (agent,) = await launched(world)
    await agent.make_ready()
    await controller.turn()
    (lost,) = world.github.registered
    await controller.kill()
    successor = Controller(world)
    await successor.resume()
    agent.controller = successor
    assert await agent.poll(wait=0.0) is None
    await successor.turn()
    assert world.github.deleted == [lost]
    await successor.turn()
    assigned = await agent.take_assignment()
    assert assigned.runner != lost
    assert set(world.github.registrations) == {assigned.runner}


@pytest.mark.case(
    "the controller is away while machines boot and work",
    topic="EC2's machines",
    source="ARC#3450",
)
@pytest.mark.parametrize(("away", "kept_for"), [(1800.0, 900.0 + 1800.0), (86400.0, 2700.0)])
@on_virtual_time
async def test_the_controllers_downtime_extends_a_deadline_to_at_most_three_times_its_length(
    away: float, kept_for: float
) -> None:
    world = World()
    controller = await started(world)
    await queue(controller, 1)
    await asyncio.sleep(10.0)
    (instance,) = world.east.running
    launched_at = controller.only_machine().since
    await controller.kill()
    await asyncio.sleep(away)
    successor = await started(world)
    # Listings have five minutes to show a job on the machine, and GitHub shows none.
    ends_at = max(launched_at + kept_for, world.clock.now() + 300.0)
    await asyncio.sleep(SHOWN_AT_GITHUB_WITHIN + 1.0)
    now = world.clock.now()
    await successor.journal.record(RunnersListed(now, "org:acme", now, ()))
    await asyncio.sleep(max(0.0, ends_at - world.clock.now() - 30.0))
    if ends_at > world.clock.now():
        assert world.east.ended == []
    await asyncio.sleep(75.0)
    assert world.east.ended[0] == (instance.id,)
    await successor.stop()


@on_virtual_time
async def test_a_machine_that_was_ready_during_the_downtime_is_not_terminated_for_silence() -> None:
    world = World()
    controller, (agent,) = await launched(world)
    await agent.make_ready()
    world.store.heartbeat = world.clock.now()
    await controller.kill()
    await asyncio.sleep(400.0)
    successor = Controller(world)
    await successor.resume()
    await successor.turn()
    assert world.east.ended == []
    again = Agent(successor, agent.instance, agent.nonce)
    again.machine = agent.machine
    await asyncio.sleep(60.0)
    now = world.clock.now()
    await successor.journal.record(RunnersListed(now, "org:acme", now, ()))
    assert await again.poll(wait=0.0) is None
    await asyncio.sleep(290.0)
    await successor.turn()
    assert world.east.ended == []
