"""Intents that are due by time: terminations by reason, reads of runners and jobs, repeated requests."""

import pytest

from autoscaler.model import events as e
from autoscaler.model.catalogue import RegistrationRate
from autoscaler.model.cooldowns import Cooldown
from autoscaler.model.identifiers import JobId, LaunchRequestId, MachineId, ProviderMachineId
from autoscaler.model.jobs.job import JobState
from autoscaler.model.machines.interruptions import NoticeKind
from autoscaler.model.machines.machine import TerminationReason
from autoscaler.model.plan import (
    Assign,
    Launch,
    ReadJob,
    ReadRunner,
    ResendLaunchRequest,
    Terminate,
)
from tests.ledger.builders import START, World, listed
from tests.planner.fleets import EAST, catalogue

C0 = MachineId("c0")


def due(world: World, seconds: float) -> tuple[object, ...]:
    """Return the intents planned `seconds` after the start."""
    world.now = START + seconds
    return world.plan().intents


def end(reason_code: TerminationReason, reason: str) -> tuple[Terminate]:
    return (Terminate(C0, reason_code, reason),)


def test_a_machine_that_does_not_attest_in_time_is_terminated() -> None:
    world = World()
    world.launch(1)
    assert due(world, 899.9) == ()
    assert due(world, 900) == end(
        TerminationReason.DEADLINE, "no attestation before the boot deadline"
    )


def test_planner_terminates_a_machine_whose_health_checks_are_late() -> None:
    world = World()
    world.launch(1)
    world.boot("c0")
    assert due(world, 599.9) == ()
    assert due(world, 600) == end(
        TerminationReason.DEADLINE, "its health checks did not finish in time"
    )


def test_a_ready_machine_may_be_silent_for_five_minutes() -> None:
    world = World()
    world.make_ready()
    assert due(world, 299.9) == ()
    assert due(world, 300) == end(
        TerminationReason.DEADLINE, "it was ready, and sent no heartbeat in time"
    )


def test_planner_terminates_a_machine_with_failed_health_checks_at_once() -> None:
    world = World()
    world.launch(1)
    world.boot("c0")
    world.do(e.HealthChecksReported, C0, False, "no GPU")
    assert due(world, 0) == end(TerminationReason.FAILED, "no GPU")


def test_a_machine_that_reported_its_exit_has_two_minutes_to_power_off() -> None:
    world = World()
    world.ready()
    world.do(e.MachineExited, C0, "bye")
    assert due(world, 119.9) == ()
    assert due(world, 120) == end(TerminationReason.EXITED, "its runner exited")


@pytest.mark.case(
    "EC2 cannot terminate a machine, or refuses",
    topic="EC2's machines",
    source="GARM#854",
)
@pytest.mark.case(
    "one stuck deletion blocks everything",
    topic="Complaints about other fleets",
    source="GARM#854",
)
def test_a_termination_without_effect_is_repeated_with_its_first_reason() -> None:
    world = World()
    world.make_ready()
    world.do(e.TerminationRequested, C0, TerminationReason.IDLE, "idle")
    assert due(world, 119.9) == ()
    assert due(world, 120) == end(TerminationReason.IDLE, "the earlier request had no effect")
    world.carry_out()
    assert due(world, 359.9) == ()
    assert len(due(world, 360)) == 1


@pytest.mark.case(
    "`completed` alone does not prove that a machine is idle",
    topic="GitHub's events",
    source="actions/runner#4492",
)
def test_the_runner_of_a_silent_assigned_machine_is_read_and_the_machine_is_kept() -> None:
    world = World()
    world.ready()
    assert due(world, 899.9) == ()
    for moment in (900, 1800, 2700):
        assert due(world, moment) == (ReadRunner(C0),)
        world.carry_out()
        world.do(e.RunnerRead, C0, False, "busy")
        assert world.plan().intents == ()


def test_two_reads_that_prove_the_end_of_the_job_terminate_the_machine() -> None:
    world = World()
    world.ready()
    for moment in (900, 1800):
        assert due(world, moment) == (ReadRunner(C0),)
        world.carry_out()
        world.do(e.RunnerRead, C0, True, "completed")
    assert world.plan().intents == end(
        TerminationReason.SILENT_AND_FINISHED,
        "no heartbeat, and GitHub shows that its runner has no job any more",
    )


def test_an_assigned_machine_is_terminated_past_its_lifetime_and_not_before() -> None:
    world = World()
    world.starts(1, world.ready())
    world.now = START + 86_000
    world.do(e.MachineSeen, C0)
    assert due(world, 86_399.9) == ()
    assert due(world, 86_400) == end(TerminationReason.LIFETIME, "assigned 86400 s ago")


def test_the_lifetime_counts_from_the_assignment() -> None:
    world = World()
    world.make_ready()
    world.now += 200
    world.assignment("c0")
    world.now = START + 86_300
    world.do(e.MachineSeen, C0)
    assert due(world, 86_599.9) == ()
    assert due(world, 86_600) == end(TerminationReason.LIFETIME, "assigned 86400 s ago")


def test_a_terminated_machine_is_not_supply_and_its_job_gets_another() -> None:
    world = World()
    world.make_ready()
    world.queue(1)
    assert [type(i) for i in due(world, 299)] == [Assign]
    assert [type(i) for i in due(world, 300)] == [Terminate, Launch]


def test_the_registration_of_a_terminated_machine_is_not_supply() -> None:
    world = World()
    world.ready()
    world.now = START + 86_300
    world.do(e.MachineSeen, C0)
    world.queue(1)
    assert due(world, 86_399) == ()
    assert [type(i) for i in due(world, 86_400)] == [Terminate, Launch]


def test_registrations_of_other_machines_stay_supply() -> None:
    world = World()
    world.ready("a")
    world.now += 100
    world.ready("b")
    world.now = START + 86_300
    for name in "ab":
        world.do(e.MachineSeen, MachineId(f"{name}0"))
    world.queue(1)
    assert [type(i) for i in due(world, 86_400)] == [Terminate]
    world.queue(2)
    assert [type(i) for i in due(world, 86_400)] == [Terminate, Launch]


def unanswered() -> World:
    world = World()
    world.queue(1)
    world.send(1)
    world.do(e.LaunchOutcomeUnknown, LaunchRequestId("c"), "timed out")
    return world


REPEATS = [5, 15, 35, 75, 135, 195, 255, 315, 375, 435, 495, 555]


def test_an_unanswered_launch_request_is_repeated_at_growing_intervals_for_ten_minutes() -> None:
    world, moments = unanswered(), []
    for moment in range(1, 1000):
        world.now = START + moment
        for repeat in world.intents(ResendLaunchRequest):
            moments.append(moment)
            world.do(e.LaunchRequestSent, repeat.launch_request)
            world.do(e.LaunchOutcomeUnknown, repeat.launch_request, "timed out")
    assert moments == REPEATS


def test_the_first_repeat_comes_after_five_seconds() -> None:
    world = unanswered()
    assert due(world, 4.9) == ()
    assert due(world, 5) == (ResendLaunchRequest(LaunchRequestId("c")),)


@pytest.mark.parametrize(("moment", "repeated"), [(599.9, True), (600.0, False)])
def test_after_ten_minutes_nothing_is_repeated(moment: float, repeated: bool) -> None:
    found = due(unanswered(), moment)
    assert any(isinstance(intent, ResendLaunchRequest) for intent in found) is repeated


def test_an_unanswered_slot_is_not_supply_after_the_retry_window() -> None:
    """The slot still counts in the caps, and the job gets another machine."""
    assert [type(intent) for intent in due(unanswered(), 600.0)] == [Launch]


def test_a_throttled_provider_gets_no_repeats() -> None:
    world = unanswered()
    world.state.cooldowns["throttle:east"] = Cooldown("throttle:east", START + 30, 1, "slow down")
    assert due(world, 29.9) == ()
    assert due(world, 30) == (ResendLaunchRequest(LaunchRequestId("c")),)


@pytest.mark.parametrize("state", ["recorded", "sent", "settled"])
def test_only_launch_requests_of_unknown_outcome_are_repeated(state: str) -> None:
    world = World()
    world.queue(1)
    if state == "recorded":
        world.record(1)
    else:
        world.send(1)
    if state == "settled":
        world.answer("c", "i-1")
    assert due(world, 100) == ()


def test_a_launch_request_with_a_later_repeat_does_not_delay_another() -> None:
    world = unanswered()
    world.now += 5.0
    world.do(e.LaunchRequestSent, LaunchRequestId("c"))
    world.do(e.LaunchOutcomeUnknown, LaunchRequestId("c"), "timed out")
    world.send(1, "d")
    world.do(e.LaunchOutcomeUnknown, LaunchRequestId("d"), "timed out")
    world.now += 5.0
    assert world.intents(ResendLaunchRequest) == [ResendLaunchRequest(LaunchRequestId("d"))]


def test_github_reads_are_planned_when_due_and_in_order() -> None:
    world = World()
    for job in (2, 1):
        world.queue(job)
        world.observe(job, JobState.WAITING)
    assert world.plan().intents == (ReadJob(JobId(1)), ReadJob(JobId(2)))
    world.carry_out()
    assert due(world, 59.9) == ()
    assert due(world, 60) == (ReadJob(JobId(1)), ReadJob(JobId(2)))


def test_a_plans_intents_are_in_the_order_of_execution() -> None:
    world = World(catalogue(registration=RegistrationRate(10, 1.0)))
    world.send(1, "u")
    world.do(e.LaunchOutcomeUnknown, LaunchRequestId("u"), "timed out")
    world.ready("g")
    world.make_ready(1, "s")
    world.now = START + 950
    for number, name in enumerate("pr"):
        world.make_ready(1, name)
        world.queue(number)
    world.register("r0")
    world.completes(0)
    world.completes(1)
    world.queue(*range(10, 14), labels=("gpu", "linux"))
    world.queue(9)
    world.observe(9, JobState.WAITING)
    world.lists(
        listed("i-u0", call="u"),
        *(world.listed(f"{name}0") for name in "gspr"),
        listed("i-x", call="p"),
        complete=False,
    )
    kinds = [type(intent).__name__ for intent in world.plan().intents]
    assert kinds == [
        "DeregisterRunner",
        "Terminate",
        "Terminate",
        "Assign",
        "Launch",
        "ReadRunner",
        "ReadJob",
    ]


@pytest.mark.case(
    "a pod ends and is deleted before its launch request is answered: a repeat would create it again",
    topic="Kubernetes",
    source="Kubernetes: Pod Lifecycle",
)
@pytest.mark.parametrize("ends", ["exited", "terminated", "interrupted"])
def test_a_launch_request_is_not_repeated_after_one_of_its_machines_ended(ends: str) -> None:
    world = World()
    world.send(2)
    world.do(e.LaunchOutcomeUnknown, LaunchRequestId("c"), "lost")
    world.lists(listed("i-c0"), complete=False)
    assert due(world, 30) == (ResendLaunchRequest(LaunchRequestId("c")),), "its machine runs"
    if ends == "exited":
        world.boot("c0")
        world.do(e.HealthChecksReported, C0, True, "ok")
        world.assignment("c0")
        world.do(e.MachineExited, C0, "bye")
    elif ends == "terminated":
        world.lists(listed("i-c0", terminated=True), complete=False)
    else:
        kind, known = NoticeKind.SPOT_INTERRUPTION, ProviderMachineId("i-c0")
        world.do(e.MachineNoticed, EAST, known, kind, world.now, "soon")
        assert [intent.machine for intent in world.intents(Terminate)] == [C0]
    assert world.intents(ResendLaunchRequest) == []
