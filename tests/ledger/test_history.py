"""The history that an operator reads: each row's time, event and text.

Each test applies one event a second and reads all rows of the history.
"""

from collections.abc import Callable
from typing import Any

from autoscaler.model import changes
from autoscaler.model import events as e
from autoscaler.model.identifiers import LaunchRequestId, MachineId
from autoscaler.model.jobs.job import JobState
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.machines.machine import TerminationReason
from tests.ledger.builders import START, WHY, World, listed

NAME = "ci-0badcafe-c0-1"
Row = tuple[float, str, str, str, str]


def reported(world: World) -> list[Row]:
    """Return the new rows of records: seconds since the start, kind, record, event, detail."""
    rows = [row for row in world.ledger.take_changes().history if row.kind != changes.FAILED_LAUNCH]
    return [(row.at - START, row.kind, row.record, row.event, row.detail) for row in rows]


def each(world: World, *steps: Callable[[], Any]) -> list[Row]:
    """Return the rows of these steps, one second apart."""
    for step in steps:
        world.now += 1.0
        step()
    return reported(world)


def event(world: World, kind: Callable[..., e.Event], *values: Any) -> Callable[[], None]:
    """A step: one event of a machine or runner."""
    return lambda: world.do(kind, *values)


def test_the_history_shows_a_launch_from_request_to_ready() -> None:
    world = World()
    machine = MachineId("c0")
    rows = each(
        world,
        lambda: world.record(2),
        event(world, e.LaunchRequestPrepared, LaunchRequestId("c"), "request"),
        event(world, e.LaunchRequestSent, LaunchRequestId("c")),
        lambda: world.answer("c", "i-1"),
        event(world, e.MachineAttested, machine, "nonce"),
        event(world, e.MachineReportedStage, machine, "drivers"),
        event(world, e.HealthChecksReported, machine, True, "8 GPUs"),
    )
    fewer = "the provider launched fewer machines and gave no reason"
    assert rows == [
        (1.0, "launch_request", "c", "recorded", f"2 x gpu {WHY}"),
        (1.0, "machine", "c0", "requested", f"launch request c {WHY}"),
        (1.0, "machine", "c1", "requested", f"launch request c {WHY}"),
        (3.0, "launch_request", "c", "sent", "attempt 1"),
        (4.0, "machine", "c0", "launched", "i-1"),
        (4.0, "machine", "c1", "failed", fewer),
        (4.0, "launch_request", "c", "answered", f"1 of 2: {fewer}"),
        (5.0, "machine", "c0", "booted", ""),
        (5.0, "machine", "c0", "attested", ""),
        (6.0, "machine", "c0", "stage", "drivers"),
        (7.0, "machine", "c0", "ready", "checks passed: 8 GPUs"),
    ]


def test_the_history_shows_a_machine_from_assignment_to_termination() -> None:
    world = World()
    (machine,) = world.make_ready()
    reported(world)
    rows = each(
        world,
        lambda: world.queue(1),
        lambda: world.name(machine),
        event(world, e.RunnerRegistered, NAME, 7),
        event(world, e.ConfigurationSent, NAME),
        event(world, e.RunnerListening, NAME),
        lambda: world.starts(1, NAME),
        lambda: world.completes(1, runner_name=NAME),
        event(world, e.MachineExited, machine, "status 0"),
        event(
            world, e.TerminationRequested, machine, TerminationReason.EXITED, "its runner has left"
        ),
        event(world, e.TerminationAnswered, machine, "the API is closed"),
        event(world, e.TerminationRequested, machine, TerminationReason.EXITED, "asked for again"),
        event(world, e.TerminationAnswered, machine),
        lambda: world.lists(world.listed(machine, terminated=True)),
    )
    assert rows == [
        (1.0, "job", "1", "queued", "webhook"),
        (2.0, "machine", "c0", "assigned", ""),
        (2.0, "runner", NAME, "named", "for gpu"),
        (3.0, "runner", NAME, "registered", "id 7"),
        (4.0, "runner", NAME, "configuration_sent", ""),
        (5.0, "runner", NAME, "listening", ""),
        (6.0, "job", "1", "in_progress", "webhook"),
        (6.0, "runner", NAME, "busy", "job 1"),
        (7.0, "job", "1", "completed", "webhook"),
        (7.0, "runner", NAME, "done", "job 1 completed"),
        (8.0, "machine", "c0", "exited", "status 0"),
        (9.0, "machine", "c0", "terminating", "its runner has left"),
        (10.0, "machine", "c0", "termination_refused", "the API is closed"),
        (13.0, "machine", "c0", "terminated", "ended"),
    ]
    assert world.runner(NAME).reason == "job 1 completed"


def test_the_history_shows_a_launch_request_that_is_never_answered() -> None:
    world = World()
    world.send(1)
    reported(world)
    rows = each(
        world,
        event(world, e.LaunchOutcomeUnknown, LaunchRequestId("c"), "timed out"),
        event(world, e.LaunchRequestSent, LaunchRequestId("c")),
        event(world, e.LaunchOutcomeUnknown, LaunchRequestId("c"), "timed out again"),
        lambda: world.lists(),
    )
    world.now += 60.0
    world.lists()
    rows += reported(world)
    assert rows == [
        (1.0, "launch_request", "c", "unknown", "timed out"),
        (2.0, "launch_request", "c", "sent", "attempt 2"),
        (3.0, "launch_request", "c", "unknown", "timed out again"),
        (
            64.0,
            "machine",
            "c0",
            "failed",
            "no answer, and no listing shows it",
        ),
        (64.0, "launch_request", "c", "written_off", "1 of 1 slot: timed out again"),
    ]
    assert world.call().settled_at == world.now


def test_the_history_shows_a_cancelled_and_a_fully_answered_launch_request() -> None:
    world = World()
    world.record(1)
    world.send(1, "d")
    reported(world)
    rows = each(
        world,
        event(world, e.LaunchRequestCancelled, LaunchRequestId("c"), "its job went away"),
        lambda: world.answer("d", "i-1"),
    )
    assert rows == [
        (1.0, "machine", "c0", "failed", "cancelled"),
        (1.0, "launch_request", "c", "cancelled", "its job went away"),
        (2.0, "machine", "d0", "launched", "i-1"),
        (2.0, "launch_request", "d", "answered", "1 of 1"),
    ]


def test_the_history_shows_a_deregistered_and_a_refused_registration() -> None:
    world = World()
    (machine,) = world.make_ready()
    reported(world)
    second = "ci-0badcafe-c0-2"
    rows = each(
        world,
        lambda: world.register(machine),
        event(world, e.RunnerDeregistrationRequested, NAME, "its job is gone"),
        event(world, e.RunnerDeregistered, NAME, "deleted"),
        lambda: world.name(machine),
        event(
            world,
            e.RunnerRegistrationFailed,
            second,
            FailureClass.CONFIGURATION,
            "no such group",
            2000.0,
        ),
    )
    assert rows == [
        (1.0, "machine", "c0", "assigned", ""),
        (1.0, "runner", NAME, "named", "for gpu"),
        (1.0, "runner", NAME, "registered", "id 7"),
        (2.0, "runner", NAME, "deregistering", "its job is gone"),
        (3.0, "runner", NAME, "done", "deleted"),
        (3.0, "machine", "c0", "ready", "deleted"),
        (4.0, "machine", "c0", "assigned", ""),
        (4.0, "runner", second, "named", "for gpu"),
        (5.0, "runner", second, "done", "configuration: no such group"),
        (5.0, "machine", "c0", "ready", "configuration: no such group"),
    ]


def test_failed_health_checks_and_a_termination_under_a_runner_enter_the_history() -> None:
    world = World()
    failed, assigned = world.launch(2)
    world.boot(failed, assigned)
    world.do(e.HealthChecksReported, assigned, True, "ok")
    name = world.assignment(assigned)
    reported(world)
    rows = each(
        world,
        event(world, e.HealthChecksReported, failed, False, "no GPU"),
        event(world, e.RunnerRead, assigned, True, "204"),
        event(
            world,
            e.TerminationRequested,
            assigned,
            TerminationReason.LIFETIME,
            "assigned 86400 s ago",
        ),
    )
    assert rows == [
        (1.0, "machine", "c0", "failed", "no GPU"),
        (2.0, "machine", "c1", "runner_read", "204"),
        (3.0, "runner", name, "done", "assigned 86400 s ago"),
        (3.0, "machine", "c1", "terminating", "assigned 86400 s ago"),
    ]
    assert world.runner(name).since == world.now


def test_the_history_shows_a_machine_that_is_lost_and_listed_again() -> None:
    world = World()
    assigned, booted = world.launch(2)
    world.boot(assigned, booted)
    world.do(e.HealthChecksReported, assigned, True, "ok")
    name = world.assignment(assigned)
    shown = (world.listed(assigned), world.listed(booted))
    world.now += 1.0
    world.lists()
    reported(world)
    world.now += 60.0
    world.lists()
    rows = reported(world)
    rows += each(world, lambda: world.lists(*shown))
    assert rows == [
        (61.0, "runner", name, "done", "its machine is terminated: not listed any more"),
        (61.0, "machine", "c0", "lost", "not listed any more"),
        (61.0, "machine", "c1", "lost", "not listed any more"),
        (62.0, "machine", "c0", "assigned", "two listings did not show it, and a later one did"),
        (62.0, "machine", "c1", "failed", "two listings did not show it, and a later one did"),
    ]
    assert world.machine(assigned).reason == "two listings did not show it, and a later one did"
    assert world.machine(booted).reason == "two listings did not show it, and a later one did"
    assert world.machine(assigned).work.last_seen == world.now


def test_machines_without_a_launch_request_enter_the_history() -> None:
    world = World()
    world.launch(1)
    reported(world)
    rows = each(
        world,
        lambda: world.lists(world.listed("c0"), listed("i-9"), listed("i-8", call="elsewhere")),
    )
    assert rows == [
        (1.0, "machine", "x-i-9", "adopted", "its launch request has no slot for it"),
        (1.0, "machine", "x-i-8", "adopted", "its launch request is not in the store"),
    ]


def test_the_history_shows_a_job_that_is_passed_over_until_its_probe() -> None:
    world = World()
    world.queue(1)
    first, second = world.ready("c"), world.ready("d")
    reported(world)
    for wait in (180.0, 60.0, 600.0):
        world.after(wait)
        world.observe(1, JobState.QUEUED, read=True)
    assert reported(world) == [
        (180.0, "job", "1", "passed_over", f"by {first}"),
        (180.0, "job", "1", "disputed", f"{first} did not get it, or runs it"),
        (180.0, "runner", first, "passed_over", ""),
        (240.0, "job", "1", "passed_over", f"by {second}"),
        (240.0, "job", "1", "on_hold", f"passed over by {first}, {second}"),
        (240.0, "job", "1", "disputed", f"{second} did not get it, or runs it"),
        (240.0, "runner", second, "passed_over", ""),
        (840.0, "job", "1", "probe", "passed over by 2 runners"),
    ]


def test_the_history_shows_the_release_of_a_job_on_hold() -> None:
    world = World()
    world.queue(1)
    world.ready("c")
    world.ready("d")
    for wait in (180.0, 60.0):
        world.after(wait)
        world.observe(1, JobState.QUEUED, read=True)
    third = world.ready("e")
    world.queue(2)
    reported(world)
    world.now += 1.0
    world.starts(2, third)
    assert [row for row in reported(world) if row[2] == "1"] == [
        (241.0, "job", "1", "released", "a job of its class and repository started"),
    ]


def test_the_history_shows_a_disputed_job_and_githubs_answer() -> None:
    world = World()
    rows = each(
        world,
        lambda: world.queue(1),
        lambda: world.observe(1, JobState.WAITING),
        lambda: world.observe(1, JobState.WAITING, read=True),
    )
    assert rows == [
        (1.0, "job", "1", "queued", "webhook"),
        (2.0, "job", "1", "disputed", "webhook"),
        (3.0, "job", "1", "waiting", "read"),
    ]


def test_a_restart_records_the_launch_requests_it_interrupted() -> None:
    world = World()
    world.record(1)
    world.send(1, "d")
    world.restart(30.0)
    assert reported(world) == [
        (30.0, "machine", "c0", "failed", "cancelled"),
        (30.0, "launch_request", "c", "cancelled", "not sent before a restart"),
        (30.0, "launch_request", "d", "unknown", "the controller restarted"),
    ]


def test_the_history_shows_registrations_that_end_with_failed_health_checks_or_at_github() -> None:
    world = World()
    rebooted, assigned = world.make_ready(2)
    first, second = world.name(rebooted), world.assignment(assigned)
    reported(world)
    rows = each(
        world,
        event(world, e.HealthChecksReported, rebooted, False, "no GPU"),
        event(world, e.RunnerClosed, second, "GitHub has removed it"),
    )
    assert rows == [
        (1.0, "runner", first, "done", "no GPU"),
        (1.0, "machine", "c0", "failed", "no GPU"),
        (2.0, "runner", second, "done", "GitHub has removed it"),
    ]


def test_a_registration_that_no_agent_acknowledges_is_supply_no_longer() -> None:
    world = World()
    (machine,) = world.make_ready()
    name = world.register(machine)
    world.do(e.ConfigurationSent, name)
    reported(world)
    world.after(180.0)
    assert reported(world) == [(180.0, "runner", name, "silent", "")]


def test_a_runner_becomes_busy_when_github_names_it_for_a_job() -> None:
    world = World()
    at_work, missed = world.ready("c"), world.ready("d")
    world.queue(1, 2)
    reported(world)
    rows = each(
        world,
        lambda: world.starts(1, at_work),
        lambda: world.completes(2, runner_name=missed),
    )
    assert [row for row in rows if row[3] == "busy"] == [
        (1.0, "runner", at_work, "busy", "job 1"),
        (2.0, "runner", missed, "busy", "job 2"),
    ]
    assert world.runner(at_work).since == START + 1.0
