"""Thousands of events or intents are handled in pieces, so that other tasks run in between."""

import asyncio
from collections.abc import Sequence

from autoscaler.controller.executor import LAUNCHED_AT_ONCE, RECORDED_AT_ONCE, TERMINATED_AT_ONCE
from autoscaler.controller.intake.deliveries import APPLIED_AT_ONCE
from autoscaler.controller.machines.launcher import ANSWERED_AT_ONCE
from autoscaler.controller.reconciler import LARGE_FLEET
from autoscaler.ledger.jobs.reports import EXPIRED_AT_ONCE
from autoscaler.model.catalogue import LARGEST_REQUEST, IdlePolicy, Limits
from autoscaler.model.changes import HistoryRow
from autoscaler.model.events import MachinesListed, QuotasRead
from autoscaler.model.identifiers import JobId, SkuName
from autoscaler.model.jobs.job import QUEUED_AT_MOST, Job, JobState
from autoscaler.model.machines.machine import Machine, MachineState, TerminationReason
from autoscaler.model.plan import Launch, Plan, Terminate
from autoscaler.planner.planner import plan
from tests.controller.agents import queue
from tests.controller.controllers import Controller, World
from tests.controller.virtual_time import on_virtual_time
from tests.ledger.builders import listed
from tests.planner.fleets import EAST, catalogue, queued, sku

MANY = 2 * LARGEST_REQUEST + 100


def wants(machines: int, limit: int | None = None) -> World:
    ready = sku(idle=IdlePolicy(minimum=machines))
    return World(catalogue=catalogue(ready, limits=Limits(machines=limit)))


def most_in_a_commit(world: World, state: MachineState) -> int:
    """Return the largest number of machines that entered a state in one transaction."""
    return max(
        sum(isinstance(one, Machine) and one.state is state for one in commit.records)
        for commit in world.store.commits
    )


def count(controller: Controller, state: MachineState) -> int:
    return sum(one.state is state for one in controller.state.machines.values())


@on_virtual_time
async def test_a_plan_of_thousands_of_machines_is_recorded_request_by_request() -> None:
    world = wants(MANY)
    controller = Controller(world)
    await controller.resume()
    await controller.turn()
    assert count(controller, MachineState.LAUNCHED) == MANY == len(world.east.running)
    assert most_in_a_commit(world, MachineState.REQUESTED) == LARGEST_REQUEST
    assert controller.crashes == []


@on_virtual_time
async def test_small_launch_requests_are_recorded_together_up_to_a_number_of_machines() -> None:
    half = LAUNCHED_AT_ONCE // 2
    names = ("a", "b", "c", "d")
    skus = [sku(name, idle=IdlePolicy(minimum=half)) for name in names]
    world = World(catalogue=catalogue(*skus))
    controller = Controller(world)
    await controller.resume()
    await controller.turn()
    assert count(controller, MachineState.LAUNCHED) == 4 * half
    sizes = [
        sum(isinstance(one, Machine) and one.state is MachineState.REQUESTED for one in c.records)
        for c in world.store.commits
    ]
    assert [size for size in sizes if size] == [2 * half, half, half]


@on_virtual_time
async def test_other_tasks_run_before_a_large_fleet_is_planned() -> None:
    """A delivery that arrives while the ledger applies TimePassed does not also wait for the plan."""
    assert await seen_before_the_plan(LARGE_FLEET)


@on_virtual_time
async def test_a_small_fleet_is_planned_in_one_step() -> None:
    assert not await seen_before_the_plan(LARGE_FLEET // 2)


async def seen_before_the_plan(jobs: int) -> bool:
    """Return whether another task sees a job expire in a fleet of so many jobs before it is planned."""
    world = wants(1, limit=1)
    controller = Controller(world)
    await controller.resume()
    now = world.clock.now()
    controller.journal.note(queued(1, now - QUEUED_AT_MOST, "gpu"))
    controller.journal.note(*(queued(job, now, "gpu") for job in range(2, jobs + 1)))
    await controller.journal.commit()
    before = []

    async def look() -> None:
        for _ in range(5):  # only steps that take no virtual time
            ended = controller.state.jobs[JobId(1)].state is JobState.COMPLETED
            before.append(ended and not controller.state.machines)
            await asyncio.sleep(0)

    looking = asyncio.get_running_loop().create_task(look())
    await controller.loop.turn()
    await looking
    assert controller.state.machines
    return any(before)


@on_virtual_time
async def test_expired_jobs_are_completed_in_pieces_and_none_is_launched_for() -> None:
    """After an outage of a day thousands of queued jobs have expired at GitHub."""
    world = World(catalogue=catalogue(sku()))
    controller = Controller(world)
    await controller.resume()
    expired = 2 * EXPIRED_AT_ONCE + 1
    at = world.clock.now() - QUEUED_AT_MOST + 1.0
    controller.journal.note(*(queued(job, at, "gpu") for job in range(1, expired + 1)))
    await controller.journal.commit()
    await world.clock.sleep(2.0)
    left = []

    async def look() -> None:
        for _ in range(4):
            jobs = controller.state.jobs.values()
            left.append(sum(job.state is JobState.QUEUED for job in jobs))
            await asyncio.sleep(0)

    looking = asyncio.get_running_loop().create_task(look())
    await controller.loop.turn()
    await looking
    assert {expired - EXPIRED_AT_ONCE, expired - 2 * EXPIRED_AT_ONCE} <= set(left)
    assert not controller.state.queues
    assert not controller.state.machines


@on_virtual_time
async def test_many_terminations_are_passed_to_the_store_in_a_separate_step() -> None:
    """Recording so many intents and copying their records are two steps of the event loop."""
    world = wants(RECORDED_AT_ONCE + 1)
    controller = Controller(world)
    await controller.resume()
    await controller.turn()
    machines = tuple(controller.state.machines)
    assert len(machines) == RECORDED_AT_ONCE + 1
    ends = tuple(Terminate(one, TerminationReason.SURPLUS, "for the test") for one in machines)
    rows: list[HistoryRow] = []
    controller.journal.on_history(rows.extend)
    carrying = asyncio.create_task(controller.executor.carry_out(Plan(ends)))
    await asyncio.sleep(0)
    assert count(controller, MachineState.TERMINATING) == len(machines)
    assert rows == [], "nothing is copied or reported in the step that records"
    await carrying
    assert most_in_a_commit(world, MachineState.TERMINATING) == len(machines), "one transaction"


@on_virtual_time
async def test_a_thousand_machines_are_recorded_in_another_step_than_their_plan_is_made() -> None:
    world = wants(LARGEST_REQUEST)
    controller = Controller(world)
    await controller.resume()
    made = plan(controller.journal.fleet())
    assert [one.count for one in made.intents if isinstance(one, Launch)] == [LARGEST_REQUEST]
    carrying = asyncio.create_task(controller.executor.carry_out(made))
    await asyncio.sleep(0)
    assert count(controller, MachineState.REQUESTED) == 0
    await carrying
    assert count(controller, MachineState.REQUESTED) == LARGEST_REQUEST


@on_virtual_time
async def test_an_answer_with_a_thousand_machines_is_recorded_in_pieces() -> None:
    world = wants(ANSWERED_AT_ONCE * 2 + 1)
    controller = Controller(world)
    await controller.resume()
    await controller.turn()
    assert count(controller, MachineState.LAUNCHED) == ANSWERED_AT_ONCE * 2 + 1
    assert most_in_a_commit(world, MachineState.LAUNCHED) == ANSWERED_AT_ONCE
    assert controller.crashes == []


@on_virtual_time
async def test_machines_listed_during_a_plan_count_in_the_caps() -> None:
    """A listing may show another machine while thousands of launches are being recorded."""
    world = wants(MANY, limit=MANY)
    controller = Controller(world)
    await controller.resume()
    stranger = listed("i-stranger", installation="of others")

    def appears(rows: Sequence[HistoryRow]) -> None:
        if any(row.event == "requested" for row in rows):
            now = world.clock.now()
            controller.journal.note(MachinesListed(now, EAST, now, False, (stranger,), more=True))

    controller.journal.on_history(appears)
    controller.journal.changed.clear()
    await controller.loop.turn()
    assert len(controller.state.machines) == LARGEST_REQUEST
    assert controller.journal.changed.is_set(), "the rest is planned again at once"
    await controller.turn()
    await controller.turn()
    assert controller.state.machines_used == MANY
    assert len(world.east.running) == MANY - 1


STORED = 2 * APPLIED_AT_ONCE + 1
"""Deliveries that wait: as many as fill two pieces, and one."""


async def with_stored_deliveries() -> tuple[World, Controller]:
    """A controller that starts with deliveries that an earlier one stored and did not apply."""
    world = World()
    before = Controller(world)
    for number in range(1, STORED + 1):
        await queue(before, number)
    await before.kill()
    controller = Controller(world)
    await controller.resume()
    return world, controller


@on_virtual_time
async def test_thousands_of_deliveries_are_applied_in_pieces_and_in_order() -> None:
    world, controller = await with_stored_deliveries()
    already = len(world.store.commits)
    assert await controller.intake.apply_waiting() == STORED
    pieces = [c for c in world.store.commits[already:] if c.applied]
    # Pieces that arrive during a write share the next transaction.
    together = APPLIED_AT_ONCE + 1
    assert [len(c.applied) for c in pieces] == [APPLIED_AT_ONCE, together]
    for commit in pieces:
        marked = [world.store.inbox[key].id for key in commit.applied]
        jobs = {job.id for job in commit.records if isinstance(job, Job)}
        assert jobs == {int(one.rpartition("-")[2]) for one in marked}, "one transaction"
    assert [key for c in pieces for key in c.applied] == list(world.store.inbox)


@on_virtual_time
async def test_other_tasks_run_between_two_pieces_and_all_deliveries_are_durable_at_the_end() -> (
    None
):
    world, controller = await with_stored_deliveries()
    applying = asyncio.create_task(controller.intake.apply_waiting())
    seen: list[int] = []
    for _ in range(5):
        seen.append(len(controller.state.jobs))
        await asyncio.sleep(0)
    assert seen == [0, APPLIED_AT_ONCE, 2 * APPLIED_AT_ONCE, STORED, STORED]
    assert not applying.done()
    await applying
    assert world.store.applied == set(world.store.inbox)


@on_virtual_time
async def test_recording_launches_stops_at_a_quota_that_is_read_meanwhile() -> None:
    world = wants(MANY)
    controller = Controller(world)
    await controller.resume()
    known: list[str] = []

    def appears(rows: Sequence[HistoryRow]) -> None:
        if not known and any(row.event == "requested" for row in rows):
            known.extend(controller.state.used_by_quota)
            quotas = ((known[0], 4 * LARGEST_REQUEST),)
            controller.journal.note(QuotasRead(world.clock.now(), EAST, quotas))

    controller.journal.on_history(appears)
    await controller.turn()
    await controller.turn()
    assert controller.state.used_by_quota[known[0]] <= 4 * LARGEST_REQUEST


@on_virtual_time
async def test_machines_are_terminated_a_hundred_in_a_step() -> None:
    """Each step has a new plan, so events between the steps count."""
    many = 3 * TERMINATED_AT_ONCE + 20
    world = wants(many)
    controller = Controller(world)
    await controller.resume()
    await controller.turn()
    controller.journal.ledger.replace_catalogue(catalogue(sku(idle=IdlePolicy(minimum=0))))
    await world.clock.sleep(24 * 3600.0)
    for _ in range(8):
        await controller.turn()
    assert 0 < most_in_a_commit(world, MachineState.TERMINATING) <= TERMINATED_AT_ONCE
    assert count(controller, MachineState.LAUNCHED) == 0


@on_virtual_time
async def test_what_counts_for_limits_is_compared_by_sku_and_by_quota() -> None:
    """A machine of one SKU for a machine of another leaves the numbers of all machines the same."""
    controller = Controller(World())
    await controller.resume()
    counted = controller.executor._counted()
    controller.state.used_by_sku[SkuName("gpu")] += 1
    assert controller.executor._counted() != counted
    controller.state.used_by_sku[SkuName("gpu")] -= 1
    assert controller.executor._counted() == counted
