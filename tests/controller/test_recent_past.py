"""What the controller remembers of the last hours: bounded, and without a look at every record."""

import asyncio
import itertools

import pytest

from autoscaler.controller.operators.recent_past import (
    BUCKET,
    BUCKETS,
    DAY,
    HOUR,
    SAMPLE_EVERY,
    SAMPLES,
)
from autoscaler.model.identifiers import JobId
from autoscaler.model.jobs.job import JobState
from autoscaler.model.wait_objectives import Starts, WaitObjective
from autoscaler.views.grid import Commit
from tests.controller.agents import launched, say
from tests.controller.controllers import Controller, World
from tests.controller.virtual_time import on_virtual_time


async def started(world: World, after: float) -> Controller:
    """Return a controller whose only job started so many seconds after it was queued, and runs."""
    controller, (agent,) = await launched(world)
    assigned = await agent.start_runner()
    queued_at = next(iter(controller.state.jobs.values())).queued_at
    await asyncio.sleep(max(0.0, queued_at + after - world.clock.now()))
    await say(controller, 1, JobState.IN_PROGRESS, assigned.runner)
    await controller.intake.apply_waiting()
    return controller


@pytest.mark.parametrize(("after", "late"), [(299.0, 0), (301.0, 1)])
@on_virtual_time
async def test_a_start_is_late_after_the_objective(after: float, late: int) -> None:
    controller = await started(World(), after)
    past = controller.parts.recent_past
    (job,) = controller.state.jobs.values()
    expected = Starts(1, late, late_at=job.started_at if late else None)
    assert past.starts(HOUR) == past.starts(DAY) == {"gpu": expected}
    await asyncio.sleep(HOUR + BUCKET)
    assert past.starts(HOUR) == {}
    assert past.starts(DAY) == {"gpu": expected}


@on_virtual_time
async def test_the_starts_of_more_than_a_day_are_dropped() -> None:
    controller = await started(World(), 60.0)
    past = controller.parts.recent_past
    (job,) = controller.state.jobs.values()
    for bucket in range(1, BUCKETS + 11):
        past._count_start(job, controller.journal.now + bucket * BUCKET)
    assert past.starts(2 * DAY)["gpu"].started == BUCKETS


@pytest.mark.parametrize(
    ("skus", "expected"),
    [("gpu", {"gpu": Starts(1, 0, 0.9)}), ("g", {}), ("cpu.*", {})],
)
@on_virtual_time
async def test_each_sku_has_its_objective_and_one_without_is_not_counted(
    skus: str, expected: dict[str, Starts]
) -> None:
    world = World(wait_objectives=(WaitObjective("some", skus, 600, 0.9),))
    controller = await started(world, 400.0)
    assert controller.parts.recent_past.starts(HOUR) == expected


@on_virtual_time
async def test_a_restart_counts_the_jobs_that_the_store_has() -> None:
    world = World()
    controller = await started(world, 60.0)
    await controller.kill()
    again = Controller(world)
    await again.resume()
    assert again.parts.recent_past.starts(HOUR) == {"gpu": Starts(1, 0)}
    assert [job.id for job in again.parts.recent_past.jobs()] == [1]


@on_virtual_time
async def test_samples_are_taken_at_changes_at_most_once_a_minute() -> None:
    controller = await started(World(), 60.0)
    past = controller.parts.recent_past
    *kept, now = past.samples()
    assert (now.working, now.booting, now.waiting) == (1, 0, 0)
    assert all(b.at - a.at >= SAMPLE_EVERY for a, b in itertools.pairwise(kept))
    await asyncio.sleep(SAMPLES * SAMPLE_EVERY + 1.0)
    assert len(past.samples()) == 1


@on_virtual_time
async def test_ended_jobs_and_commits_are_kept_after_the_ledger_forgot_them() -> None:
    world = World()
    controller = await started(world, 60.0)
    past = controller.parts.recent_past
    changes = past.changes
    runner = controller.state.jobs[next(iter(controller.state.jobs))].runner_name
    await say(controller, 1, JobState.COMPLETED, runner)
    await controller.intake.apply_waiting()
    assert past.changes > changes
    del controller.state.jobs[JobId(1)]
    assert [(job.id, job.conclusion) for job in past.jobs()] == [(1, "success")]
    assert controller.queries.repositories()[0].ended == 1
    past.commits[7] = Commit("abc", "main")
    assert len(controller.queries.grid("acme/widgets").rows) == 1


@on_virtual_time
async def test_a_job_that_only_the_store_has_keeps_its_machine_and_history() -> None:
    controller = await started(World(), 60.0)
    job = next(iter(controller.state.jobs))
    machine = controller.only_machine().id
    runner = controller.state.jobs[job].runner_name
    await say(controller, 1, JobState.COMPLETED, runner)
    await controller.intake.apply_waiting()
    del controller.state.jobs[JobId(1)]
    found = await controller.queries.ended(job)
    assert found is not None
    assert found.job is not None
    assert (found.skus, found.job.machine, found.job.conclusion) == (("gpu",), machine, "success")
    kinds = {one.kind for one in await controller.queries.history("1")}
    assert kinds == {"job", "machine", "runner"}
