"""The waiting time of the oldest job of a SKU, including disputed jobs and jobs on hold."""

import pytest

from autoscaler.controller.reporting.fleet_counts import fleet_counts
from autoscaler.ledger.ledger import Ledger
from autoscaler.model.jobs.job import JobState
from tests.ledger.builders import World
from tests.ledger.test_holds import held_jobs, leaves_idle
from tests.planner.fleets import catalogue, sku


def ages(world: World) -> dict[str, float]:
    oldest = fleet_counts(world.state, world.now).oldest_waiting
    return {str(name): age for name, age in oldest.items()}


@pytest.mark.case(
    "stuck jobs raise no alert",
    topic="Complaints about other fleets",
    source="ARC#3423",
)
def test_the_age_is_that_of_the_oldest_job_that_still_waits() -> None:
    world = World(catalogue(sku("gpu"), sku("cpu")))
    assert ages(world) == {}
    world.queue(1)
    world.after(30.0).queue(2)
    world.after(10.0).queue(3, labels=("cpu",))
    assert ages(world) == {"gpu": 40.0, "cpu": 0.0}
    world.observe(1, JobState.IN_PROGRESS)
    assert ages(world) == {"gpu": 10.0, "cpu": 0.0}
    world.completes(2)
    world.completes(3, labels=("cpu",))
    assert ages(world.after(60.0)) == {}


def test_a_job_that_waits_for_an_approval_does_not_wait_for_a_runner() -> None:
    world = World()
    world.observe(1, JobState.WAITING)
    assert ages(world.after(60.0)) == {}


def test_the_age_counts_from_githubs_queue_time() -> None:
    world = World()
    world.observe(1, JobState.QUEUED, queued_at=world.now - 500.0)
    assert ages(world) == {"gpu": 500.0}


def test_an_uncertain_job_counts_as_waiting() -> None:
    world = World()
    world.queue(1)
    world.observe(1, JobState.WAITING)
    world.queue(1)
    assert world.job(1).disputed
    assert ages(world.after(7.0)) == {"gpu": 7.0}


@pytest.mark.case(
    "stuck jobs raise no alert",
    topic="Complaints about other fleets",
    source="ARC#3423",
)
def test_a_job_on_hold_counts_as_waiting() -> None:
    world = World()
    began = world.now
    world.queue(1)
    for name in "ab":
        leaves_idle(world, name)
    assert held_jobs(world) == [1]
    assert ages(world) == {"gpu": world.now - began}


def test_the_age_is_never_negative() -> None:
    world = World()
    world.observe(1, JobState.QUEUED, queued_at=world.now + 5.0)
    assert ages(world) == {"gpu": 0.0}


def test_the_oldest_waiting_job_is_known_after_a_restart() -> None:
    world = World()
    world.queue(1)
    restarted = Ledger(world.catalogue)
    restarted.restore([world.job(1)], [])
    assert fleet_counts(restarted.state, world.now + 3.0).oldest_waiting == {"gpu": 3.0}
