"""A restart: requests are continued or cancelled, and what must be read again."""

import dataclasses
from dataclasses import replace

import pytest

from autoscaler.ledger.ledger import Ledger
from autoscaler.model import events as e
from autoscaler.model.catalogue import LaunchRate, LaunchTokens, Rate, RegistrationRate
from autoscaler.model.identifiers import JobId, LaunchRequestId, MachineId
from autoscaler.model.jobs.job import JobState, Question
from autoscaler.model.jobs.runners import RunnerState
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.machines.launch_requests import LaunchRequestState
from autoscaler.model.machines.machine import MachineState, TerminationReason
from autoscaler.model.plan import Assign, DeregisterRunner, Launch, Terminate
from tests.ledger.builders import GPU, GPU_CLASS, START, World
from tests.planner.fleets import EAST, catalogue, launched, sku


def test_recorded_launch_requests_that_were_not_sent_are_cancelled() -> None:
    world = World()
    world.record(2)
    world.restart(10.0)
    assert world.call().state is LaunchRequestState.SETTLED
    assert set(world.states().values()) == {MachineState.FAILED}
    assert world.ledger.take_changes().history[-1].detail == "not sent before a restart"


def test_launch_requests_in_flight_get_an_unknown_outcome() -> None:
    world = World()
    world.send(1)
    world.restart(10.0)
    assert (world.call().state, world.call().reason) == (
        LaunchRequestState.UNKNOWN,
        "the controller restarted",
    )
    assert world.states() == {"c0": "requested"}
    world.restart(10.0)
    assert world.call().state is LaunchRequestState.UNKNOWN


@pytest.mark.case(
    "the API server refuses a pod, the controller restarts, and the repeated request creates the pod",
    topic="Kubernetes",
    source="Kubernetes: API Concepts",
)
@pytest.mark.parametrize("created", [True, False])
def test_a_machine_that_a_repeated_request_created_got_no_job_from_an_earlier_process(
    created: bool,
) -> None:
    """Found by seed 74 of the worlds with clusters: a pod without a node stayed for half an hour.

    A pod that exists already may have a job, if the store is a restored backup.
    """
    world = World()
    world.send(1)
    world.restart(10.0)
    world.do(e.LaunchRequestSent, LaunchRequestId("c"))
    answer = (replace(launched("i-c0"), created=created),)
    world.do(e.LaunchRequestAnswered, LaunchRequestId("c"), answer, ())
    assert world.state.evidence.proves_unused(world.machine("c0")) is created
    shown = replace(world.listed("c0"), cannot_start=True, failure=FailureClass.CAPACITY)
    world.lists(shown, complete=False)
    assert (world.machine("c0").state is MachineState.FAILED) is created
    world.restart(10.0)
    assert not world.state.evidence.proves_record_of(world.machine("c0"))


def test_ready_machines_are_not_assigned_until_their_agent_polls() -> None:
    world = World()
    world.make_ready()
    world.queue(1)
    world.restart(10.0)
    assert world.machine("c0").work.agent_seen is False
    assert world.intents(Assign) == []
    world.do(e.MachineSeen, MachineId("c0"))
    assert not world.machine("c0").work.agent_seen  # a heartbeat is no proof of idleness
    world.do(e.MachineSeen, MachineId("c0"), True)
    assert world.machine("c0").work.agent_seen
    assert world.intents(Assign) == [Assign(MachineId("c0"), GPU_CLASS)]


@pytest.mark.parametrize(("seconds", "launches"), [(0.0, 0), (119.9, 0), (120.0, 1)])
def test_ready_machines_count_as_supply_for_two_minutes_after_a_restart(
    seconds: float, launches: int
) -> None:
    world = World()
    world.make_ready()
    world.queue(1)
    world.restart(10.0)
    world.now += seconds
    assert len(world.intents(Launch)) == launches


def test_the_deadline_of_a_terminating_machine_is_not_extended_by_the_downtime() -> None:
    world = World()
    world.make_ready(1, "b")
    world.do(e.TerminationRequested, MachineId("b0"), TerminationReason.IDLE, "idle")
    world.restart(10.0)
    assert (world.machine("b0").absence, world.machine("b0").due) == (0.0, START + 120.0)


def test_downtimes_add_up_until_the_machine_changes_its_state() -> None:
    world = World()
    world.launch(1)
    world.restart(10.0)
    world.restart(20.0)
    assert world.machine("c0").absence == 30.0
    world.boot("c0")
    assert world.machine("c0").absence == 0.0


@pytest.mark.parametrize("registered", [True, False])
def test_a_deregistration_in_progress_starts_again(registered: bool) -> None:
    world = World()
    world.make_ready()
    name = world.register("c0") if registered else world.name("c0")
    world.do(e.RunnerDeregistrationRequested, name, "its job is gone")
    world.restart(10.0)
    expected = RunnerState.REGISTERED if registered else RunnerState.NAMED
    assert world.runner(name).state is expected
    assert world.intents(DeregisterRunner) == [
        DeregisterRunner(name, "its JIT configuration was lost in a restart")
    ]


def test_registrations_that_a_machine_fetched_are_kept() -> None:
    world = World()
    world.ready()
    world.restart(10.0)
    assert world.intents(DeregisterRunner) == []
    assert world.states() == {"c0": "assigned"}


@pytest.mark.parametrize(("absence", "level"), [(0.0, 0.0), (4.0, 2.0), (100.0, 10.0)])
def test_the_registration_budget_starts_with_what_the_downtime_refilled(
    absence: float, level: float
) -> None:
    world = World(catalogue(registration=RegistrationRate(burst=10, per_second=0.5)))
    world.ready()
    world.restart(absence)
    assert world.fleet().registrations == {"acme": level}


def test_disputed_jobs_are_read_again_and_cooldowns_are_kept() -> None:
    world = World()
    world.queue(1, 2)
    world.observe(1, JobState.WAITING)
    world.send(1)
    world.answer("c")
    before = dict(world.state.cooldowns)
    world.restart(10.0)
    assert world.state.reads == {1: Question(START, START)}
    assert world.state.cooldowns == before
    assert [job.id for job in world.state.queues[GPU_CLASS].values()] == [2]
    assert world.state.started_at == START + 10


def test_restored_records_are_not_stored_again() -> None:
    world = World()
    world.make_ready()
    world.queue(1)
    world.restart(0.0)
    assert {type(r).__name__ for r in world.ledger.take_changes().records} == {"Machine"}


@pytest.mark.case(
    "a SKU is removed from the configuration while its machines exist",
    topic="Operators' files",
    source="ARC#4168",
)
def test_a_sku_that_left_the_configuration_does_not_block_the_others() -> None:
    """No SKU serves its jobs, its ready machines are terminated, and the other SKUs continue."""
    world = World(catalogue(sku("old"), sku("gpu")))
    world.make_ready(1, "o", "old")
    world.record(1, "u", "old")
    world.observe(1, JobState.QUEUED, ("old",))
    world.queue(2)
    world.catalogue = catalogue(sku("gpu"))
    world.restart(10.0)
    assert world.state.jobs[JobId(1)].demand is None
    assert world.intents(Terminate) == []
    world.do(e.MachineSeen, MachineId("o0"), True)
    assert [end.machine for end in world.intents(Terminate)] == ["o0"]
    assert [launch.sku for launch in world.intents(Launch)] == ["gpu"]
    world.carry_out()
    assert world.plan().intents == ()


def test_the_launch_rate_after_a_restart_refills_at_its_normal_speed() -> None:
    rates = {EAST: LaunchRate(Rate(10, 0.5), Rate(20, 0.25))}
    world = World(dataclasses.replace(catalogue(), launch_rates=rates))
    world.launch(1)
    world.restart(8.0)
    assert world.fleet().launch_tokens == {EAST: LaunchTokens(4.0, 2.0)}


def test_before_the_start_the_fleet_is_empty() -> None:
    known = catalogue()
    fleet = Ledger(known).fleet(5.0)
    assert (fleet.started_at, fleet.now, fleet.machines, fleet.queues) == (0.0, 5.0, {}, {})
    assert fleet.catalogue is known
    assert list(fleet.offerings) == ["east/g5.xlarge/a/on-demand", "east/g5.xlarge/b/on-demand"]


def test_jobs_in_progress_are_counted() -> None:
    world = World()
    world.queue(1, 2)
    for job, name in ((1, "c"), (2, "d")):
        world.starts(job, world.ready(name))
    assert world.state.in_progress[GPU] == 2
