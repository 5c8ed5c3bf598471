"""Rule 10: every job that waits has a reason that a person can read."""

import dataclasses

import pytest

from autoscaler.model import events as e
from autoscaler.model.catalogue import Limits, RegistrationRate
from autoscaler.model.failures import FailureClass
from autoscaler.model.identifiers import JobId, MachineId
from autoscaler.model.jobs import JobState
from autoscaler.model.plan import Grant, Plan, Waiting
from autoscaler.planner.waiting import why_waiting
from tests.ledger.builders import GPU_CLASS, World
from tests.planner.fleets import catalogue, sku

READY = "a runner is ready for it: GitHub has to hand it out"
COMING = "a machine for it is being launched or boots"
PLANNED = "a machine for it is requested now"


def why(world: World, job: int) -> str:
    return why_waiting(world.fleet(), world.plan(), JobId(job))


def test_a_stranger_is_said_to_be_one() -> None:
    assert why(World(), 9) == "this job is not known here"


@pytest.mark.parametrize("state", ["in_progress", "completed"])
def test_a_job_that_started_does_not_wait(state: str) -> None:
    world = World()
    world.observe(1, JobState(state))
    assert why(world, 1) == f"it does not wait: it is {state}"


def test_a_job_that_nobody_covers_is_told_by_what_it_asked_for() -> None:
    world = World()
    world.queue(1, labels=("macOS", "m1"))
    assert why(world, 1) == "no SKU and scope here cover acme/widgets with labels m1, macos"


def test_disputed_and_protected_jobs_wait_for_github() -> None:
    world = World()
    world.observe(1, JobState.WAITING)
    assert why(world, 1) == "GitHub holds it for an environment's protection rules"
    world.queue(1)
    assert why(world, 1) == "GitHub said both queued and waiting: it is being asked"


def test_a_held_job_names_the_runners_that_were_passed_over() -> None:
    world = World()
    world.queue(1)
    for name in "ab":
        runner = world.ready(name)
        world.now += 120
        world.do(e.MachineExited, MachineId(f"{name}0"), f"{runner} left")
    assert why(world, 1) == (
        "GitHub did not give it to fitting runners (ci-0badcafe-a0-1, ci-0badcafe-b0-1): "
        "tried again now and then"
    )


def test_reasons_go_down_the_queue_by_what_serves_it() -> None:
    world = World(catalogue(sku(max_machines=4), registration=RegistrationRate(1, 0.001)))
    world.ready("a")
    world.park(1, "p")
    world.launch(1, "l")
    world.record(1, "u")
    for job in range(1, 6):
        world.queue(job)
        world.now += 1
    parked = why(world, 2)
    assert "parked" in parked
    assert [why(world, job) for job in (1, 3, 4)] == [READY, COMING, PLANNED]
    assert why(world, 5) not in {READY, parked, COMING, PLANNED}
    runs = world.plan().waiting[GPU_CLASS]
    assert [run.count for run in runs] == [1, 1, 1, 1, 1]
    assert [run.blocked for run in runs] == [False] * 4 + [True]


def test_a_job_launched_for_in_this_plan_is_said_to_be() -> None:
    world = World()
    world.queue(1, 2)
    assert world.plan().waiting == {GPU_CLASS: (Waiting(2, PLANNED),)}
    assert why(world, 1) == PLANNED


def test_a_job_blocked_by_a_cap_is_told_which() -> None:
    world = World(catalogue(limits=Limits(machines=1)))
    world.queue(1)
    world.now += 1
    world.queue(2)
    assert world.plan().waiting[GPU_CLASS] == (
        Waiting(1, PLANNED),
        Waiting(1, "the fleet's limit of 1 machines is reached", blocked=True),
    )
    assert why(world, 2) == "the fleet's limit of 1 machines is reached"


def test_a_plan_older_than_the_job_has_no_reason_yet() -> None:
    world = World()
    before = world.plan()
    world.queue(1)
    assert why_waiting(world.fleet(), before, JobId(1)) == "it is planned for next"
    fleet = dataclasses.replace(world.fleet(), queues={})
    assert why_waiting(fleet, Plan(), JobId(1)) == "it is planned for next"


def test_a_class_without_jobs_has_no_entry() -> None:
    world = World()
    world.queue(1)
    world.completes(1)
    assert world.plan().waiting == {}


def test_a_scope_in_which_nothing_can_be_registered_says_so() -> None:
    world = World()
    world.park(1)
    world.queue(1)
    (grant,) = world.intents(Grant)
    name = world.name(grant.machine)
    world.do(e.RunnerMintFailed, name, FailureClass.CONFIGURATION, "403 no", world.now + 60)
    (run,) = world.plan().waiting[GPU_CLASS]
    assert run.blocked
    assert "403 no" in run.reason
