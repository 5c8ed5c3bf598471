"""Rule 10: every waiting job has a reason that a person can read."""

import pytest

from autoscaler.controller.reporting.fleet_counts import fleet_counts
from autoscaler.model import events as e
from autoscaler.model.catalogue import Limits, RegistrationRate
from autoscaler.model.identifiers import MachineId, SkuName
from autoscaler.model.jobs.demand import DemandClass
from autoscaler.model.jobs.job import JobState
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.plan import Assign
from autoscaler.model.reasons.table import WaitCode
from autoscaler.model.reasons.waiting import Waiting, WaitReason
from autoscaler.planner.waiting import not_assigned
from tests.ledger.builders import GPU_CLASS, World
from tests.planner.fleets import catalogue, sku

READY = "a runner for the job registers or is idle; GitHub has not assigned the job yet"
MACHINE_READY = (
    "a machine for the job is ready; its runner registers within the registration rate limit"
)
COMING = "a machine for the job is launching or booting"
PLANNED = "a machine for the job is about to be requested"
LAUNCH_PLANNED = WaitReason(WaitCode.LAUNCH_PLANNED)
LIMIT = WaitReason(WaitCode.FLEET_MACHINES, count=1)
ASKED = "asking GitHub for the current state of the job"
HELD = (
    "GitHub gave jobs of acme/widgets to none of two idle runners with their labels; check that the runner "
    "group 'Default' of acme admits it: Settings > Actions > Runner groups (repository access, public "
    "repositories, workflow access); retrying from time to time"
)


def reasons(world: World) -> list[tuple[int, str, bool]]:
    """Return the waiting reasons of the only class with jobs."""
    (runs,) = world.plan().waiting.values()
    return [(run.count, run.message, run.blocked) for run in runs]


@pytest.mark.parametrize("state", ["waiting", "in_progress", "completed"])
def test_waiting_and_started_jobs_have_no_waiting_reason(state: str) -> None:
    world = World()
    world.observe(1, JobState(state))
    assert world.plan().waiting == {}


def test_a_job_that_no_sku_serves_has_no_waiting_reason() -> None:
    world = World()
    world.queue(1, labels=("macOS", "m1"))
    assert world.plan().waiting == {}


def test_an_uncertain_job_waits_for_github_s_answer() -> None:
    world = World()
    world.queue(1)
    world.observe(1, JobState.WAITING)
    world.queue(2, 3)
    world.observe(4, JobState.WAITING)
    world.queue(4)  # a job that GitHub may hold for an approval
    assert reasons(world) == [(2, PLANNED, False), (1, ASKED, True)]
    assert fleet_counts(world.state, world.now).jobs_waiting == {"gpu": 3}
    world.observe(1, JobState.COMPLETED, read=True)
    assert reasons(world) == [(2, PLANNED, False)]


def test_the_waiting_reason_of_a_job_on_hold_is_that_runners_were_passed_over() -> None:
    world = World()
    world.queue(1)
    for name in "ab":
        runner = world.ready(name)
        world.now += 120
        world.do(e.MachineExited, MachineId(f"{name}0"), f"{runner} left")
        assert reasons(world) == [(1, ASKED, True)]
        world.observe(1, JobState.QUEUED, read=True)
    assert reasons(world) == [(1, HELD, True)]
    world.now += 1
    world.observe(2, JobState.QUEUED, repository="acme/other")
    assert reasons(world) == [(1, PLANNED, False), (1, HELD, True)]


@pytest.mark.parametrize("refused", [True, False])
@pytest.mark.parametrize(
    ("repositories", "named"),
    [(("a/b",), "a/b"), (tuple(f"a/r{n}" for n in range(5)), "a/r0, a/r1, a/r2, ...")],
)
def test_the_reason_of_jobs_on_hold_names_the_group_the_setting_and_some_repositories(
    repositories: tuple[str, ...], named: str, *, refused: bool
) -> None:
    demand = DemandClass("org:a", "gpu", ("gpu",), (SkuName("gpu"),))
    message = not_assigned(demand, repositories, refused=refused).message
    assert (f"admit {named}:" if refused else f"jobs of {named} to none") in message
    assert "the runner group 'gpu' of a " in message
    assert "repository access" in message


def test_the_reason_of_jobs_on_hold_in_a_repositorys_scope_names_no_group() -> None:
    demand = DemandClass("repo:a/b", "Default", ("gpu",), (SkuName("gpu"),))
    message = not_assigned(demand, ("a/b",), refused=False).message
    assert "group" not in message
    assert "Settings > Actions of a/b" in message


def test_waiting_reasons_follow_the_order_in_which_supply_serves_the_queue() -> None:
    world = World(catalogue(sku(max_machines=4), registration=RegistrationRate(1, 0.001)))
    world.ready("a")
    world.make_ready(1, "p")
    world.launch(1, "l")
    world.record(1, "u")
    for job in range(1, 6):
        world.queue(job)
        world.now += 1
    assert reasons(world) == [
        (1, READY, False),
        (1, MACHINE_READY, False),
        (1, COMING, False),
        (1, PLANNED, False),
        (
            1,
            "the registration rate limit (github.registrations) allows no further runner yet",
            True,
        ),
    ]


def test_a_job_with_a_launch_in_this_plan_has_that_waiting_reason() -> None:
    world = World()
    world.queue(1, 2)
    assert world.plan().waiting == {GPU_CLASS: (Waiting(2, (LAUNCH_PLANNED,)),)}


def test_the_waiting_reason_names_the_reached_cap() -> None:
    world = World(catalogue(limits=Limits(machines=1)))
    world.queue(1)
    world.now += 1
    world.queue(2)
    assert world.plan().waiting[GPU_CLASS] == (
        Waiting(1, (LAUNCH_PLANNED,)),
        Waiting(1, (LIMIT,), blocked=True),
    )


def test_a_class_without_jobs_has_no_entry() -> None:
    world = World()
    world.queue(1)
    world.completes(1)
    assert world.plan().waiting == {}


def test_jobs_of_a_scope_on_hold_have_that_waiting_reason() -> None:
    world = World()
    world.make_ready(1)
    world.queue(1)
    (assignment,) = world.intents(Assign)
    name = world.name(assignment.machine)
    world.do(e.RunnerRegistrationFailed, name, FailureClass.CONFIGURATION, "403 no", world.now + 60)
    (run,) = world.plan().waiting[GPU_CLASS]
    assert run.blocked
    assert "403 no" in run.message
