"""Launches: one machine for each job without supply, then the ready minimum."""

from dataclasses import replace

import pytest

from autoscaler.model import events as e
from autoscaler.model.catalogue import IdlePolicy, Limits
from autoscaler.model.identifiers import LaunchRequestId, MachineId, RunnerName
from autoscaler.model.jobs.job import JobState
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.plan import Assign, DeregisterRunner, Launch, Terminate
from tests.ledger.builders import World, failure, listed
from tests.planner.fleets import EAST, catalogue, sku


def counts(world: World) -> dict[str, int]:
    return {launch.sku: launch.count for launch in world.intents(Launch)}


def test_each_job_gets_a_machine_and_each_sku_one_launch_request() -> None:
    world = World(catalogue(sku("gpu"), sku("cpu")))
    world.queue(1, 2, 3)
    world.now += 1
    world.queue(4, labels=("cpu",))
    first, second = world.intents(Launch)
    assert (first.sku, first.provider, first.option, first.count) == ("gpu", EAST, 0, 3)
    assert first.offerings == world.keys("gpu")
    assert (second.sku, second.count) == ("cpu", 1)


def test_the_sku_of_the_oldest_job_without_a_machine_is_launched_first() -> None:
    world = World(catalogue(sku("cpu"), sku("gpu")))
    world.launch(1)
    for job, label in enumerate(("gpu", "cpu", "gpu"), 1):
        world.queue(job, labels=(label,))
        world.now += 1
    assert list(counts(world)) == ["cpu", "gpu"]
    world.queue(4, labels=("gpu",))
    assert counts(world) == {"cpu": 1, "gpu": 2}


@pytest.mark.case(
    "stale counters cause too many launches until a person deletes state",
    topic="Complaints about other fleets",
    source="ARC#4397",
)
def test_a_carried_out_plan_needs_no_further_intents() -> None:
    world = World()
    world.queue(1, 2)
    assert counts(world) == {"gpu": 2}
    world.carry_out()
    (call,) = world.state.launch_requests.values()
    for event, values in (
        (e.LaunchRequestPrepared, ("{}",)),
        (e.LaunchRequestSent, ()),
        (e.LaunchOutcomeUnknown, ("timed out",)),
    ):
        assert world.plan().intents == ()
        world.do(event, call.id, *values)
    assert world.plan().intents == ()
    world.answer(call.id, "i-1", "i-2")
    assert world.plan().intents == ()
    world.boot(*call.slots)
    assert world.plan().intents == ()


def test_failed_slots_are_launched_in_another_offering() -> None:
    world = World()
    world.queue(1, 2)
    world.send(2)
    first, second = world.keys()
    world.answer("c", "i-1", failures=[failure(FailureClass.CAPACITY, first)])
    (launch,) = world.intents(Launch)
    assert (launch.count, launch.offerings) == (1, (second,))


@pytest.mark.parametrize("state", [JobState.WAITING, JobState.IN_PROGRESS, JobState.COMPLETED])
def test_only_queued_jobs_are_launched_for(state: JobState) -> None:
    world = World()
    world.observe(1, state)
    assert world.plan().intents == ()


def test_nothing_is_launched_for_disputed_held_or_foreign_jobs() -> None:
    world = World()
    world.queue(1)
    world.observe(1, JobState.WAITING)
    world.queue(2, labels=("other",))
    assert counts(world) == {}


def test_the_first_sku_in_configured_order_is_launched() -> None:
    world = World(catalogue(sku("zeta", labels=("x",)), sku("alpha", labels=("x",))))
    world.queue(1, labels=("x",))
    assert counts(world) == {"zeta": 1}


def test_a_ready_machine_of_any_sku_serves_before_a_launch() -> None:
    world = World(catalogue(sku("zeta", labels=("x",)), sku("alpha", labels=("x",))))
    world.make_ready(1, "p", "alpha")
    world.queue(1, labels=("x",))
    assert [intent.machine for intent in world.intents(Assign)] == ["p0"]
    assert counts(world) == {}


@pytest.mark.case(
    "GitHub may give a job to any idle runner with its labels: the controller binds the job when "
    "`in_progress` names the runner",
    topic="GitHub's events",
    source="actions/runner#620; actions/scaleset",
)
@pytest.mark.case(
    "a race of assignments drops jobs; stolen runners leave a job without a machine for hours",
    topic="Complaints about other fleets",
    source="GAR#5026; GAR#3130; runs-on#168; runs-on#193",
)
def test_a_job_whose_runner_took_another_job_gets_a_new_machine() -> None:
    world = World()
    runner = world.ready("a")
    world.queue(1, 2)
    assert counts(world) == {"gpu": 1}
    world.carry_out()
    world.starts(3, runner, ("gpu",))
    assert counts(world) == {"gpu": 1}


def test_a_runner_that_was_passed_over_does_not_count_as_supply() -> None:
    world = World()
    world.ready("a")
    world.queue(1)
    assert counts(world) == {}
    world.after(180)
    assert counts(world) == {}, "it may be at work on the job, every word of it lost"
    world.observe(1, JobState.QUEUED, read=True)
    assert counts(world) == {"gpu": 1}


def test_a_job_on_hold_is_not_demand_until_its_probe() -> None:
    world = World()
    world.queue(1)
    for name in "ab":
        world.assignment(world.make_ready(1, name)[0])
        world.now += 120
        world.do(e.MachineExited, MachineId(f"{name}0"), "no job came")
        world.observe(1, JobState.QUEUED, read=True)
    assert counts(world) == {}
    world.after(600)
    assert counts(world) == {"gpu": 1}


def test_an_unverified_machine_does_not_count_as_supply() -> None:
    world = World()
    world.lists(listed("i-9", call="unknown"))
    world.queue(1)
    assert counts(world) == {"gpu": 1}


@pytest.mark.parametrize(("limit", "launched"), [(5, 3), (4, 2), (2, 0), (1, 0)])
def test_foreign_machines_count_in_the_caps(limit: int, launched: int) -> None:
    world = World(catalogue(limits=Limits(machines=limit)))
    world.lists(listed("i-1", installation="x"), listed("i-2", installation="x"))
    world.queue(1, 2, 3)
    assert counts(world) == ({"gpu": launched} if launched else {})


@pytest.mark.case(
    "open launch requests count at their most expensive offering in every limit",
    topic="EC2's API",
    source="GAR#5007",
)
@pytest.mark.parametrize(("cap", "launched"), [(4, 2), (3, 1), (2, 0)])
def test_slots_of_open_launch_requests_count_in_every_cap(cap: int, launched: int) -> None:
    for known in (
        catalogue(sku(max_machines=cap)),
        catalogue(limits=Limits(machines=cap)),
        catalogue(limits=Limits(dollars_per_hour=float(cap))),
        catalogue(limits=Limits(quotas={"east/G": 4 * cap})),
    ):
        world = World(known)
        world.send(1, "a")
        world.launch(1, "b")
        world.queue(1, 2, 3, 4)
        assert counts(world) == ({"gpu": launched} if launched else {})


def test_assigned_and_terminating_machines_count_in_the_caps() -> None:
    world = World(catalogue(sku(max_machines=2)))
    world.starts(9, world.ready("a"))
    world.do(e.MachineExited, world.runner(world.ready("b")).machine, "bye")
    world.queue(1)
    assert counts(world) == {}
    world.lists(world.listed("a0"), world.listed("b0", terminated=True))
    assert counts(world) == {"gpu": 1}


def warm(minimum: int, machines: int | None = None) -> World:
    policy = IdlePolicy(minimum=minimum)
    return World(catalogue(sku(idle=policy), limits=Limits(machines=machines)))


def test_the_ready_minimum_is_demand_after_every_job() -> None:
    world = warm(2)
    assert counts(world) == {"gpu": 2}
    world.make_ready(2)
    assert world.plan().intents == ()
    world.queue(1)
    assert [type(intent) for intent in world.plan().intents] == [Assign, Launch]
    assert counts(world) == {"gpu": 1}


@pytest.mark.parametrize(
    ("jobs", "minimum", "largest", "reasons"),
    [
        (3, 0, 9, ["for 3 waiting jobs"]),
        (0, 2, 9, ["for the ready minimum"]),
        (1, 2, 9, ["for 1 waiting job and 2 machines of the ready minimum"]),
        (
            3,
            2,
            2,
            [
                "for 2 waiting jobs",
                "for 1 waiting job and 1 machine of the ready minimum",
                "for the ready minimum",
            ],
        ),
    ],
)
def test_a_launch_says_what_its_machines_are_for(
    jobs: int, minimum: int, largest: int, reasons: list[str]
) -> None:
    known = catalogue(sku(idle=IdlePolicy(minimum=minimum)))
    world = World(replace(known, largest_requests={EAST: largest}))
    world.queue(*range(1, 1 + jobs))
    assert [launch.reason for launch in world.intents(Launch)] == reasons


def test_booting_machines_count_for_the_minimum() -> None:
    world = warm(3)
    world.send(1, "a")
    world.launch(1, "b")
    assert counts(world) == {"gpu": 1}


def test_a_ready_minimum_never_takes_capacity_from_a_job() -> None:
    world = warm(5, machines=3)
    world.queue(1, 2)
    assert counts(world) == {"gpu": 3}
    world.queue(3, 4)
    assert counts(world) == {"gpu": 3}
    assert {w.message: w.count for w in next(iter(world.plan().waiting.values()))} == {
        "a machine for the job is about to be requested": 3,
        "the fleet's limit of 3 machines is reached": 1,
    }


def test_assigned_machines_do_not_count_for_the_ready_minimum() -> None:
    world = warm(1)
    world.starts(1, world.ready("a"))
    assert counts(world) == {"gpu": 1}


def test_a_machine_is_supply_again_while_its_registration_is_deregistered() -> None:
    world = World()
    world.queue(1)
    name = world.register(world.make_ready()[0])
    world.do(e.RunnerDeregistrationRequested, name, "no queued job needs it")
    assert counts(world) == {}
    world.starts(2, RunnerName(name))
    assert counts(world) == {"gpu": 1}


def test_no_machine_is_launched_twice_if_the_machine_ends_before_github_answers() -> None:
    world = World()
    world.queue(1)
    (machine,) = world.make_ready()
    world.register(machine)
    world.observe(1, JobState.COMPLETED)
    assert [type(intent) for intent in world.carry_out().intents] == [DeregisterRunner]
    world.queue(2)
    world.after(301.0)
    assert [type(intent) for intent in world.carry_out().intents] == [Terminate, Launch]
    assert world.plan().intents == ()


def test_a_cancelled_launch_request_is_launched_again_if_it_is_needed() -> None:
    world = World()
    world.queue(1)
    world.record(1)
    assert world.plan().intents == ()
    world.do(e.LaunchRequestCancelled, LaunchRequestId("c"), "not sent before a restart")
    assert counts(world) == {"gpu": 1}
