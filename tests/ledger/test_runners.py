"""Registrations, from the assignment to their end, and the budget that they use."""

import dataclasses

import pytest

from autoscaler.ledger.jobs.runners import registration_level
from autoscaler.model import events as e
from autoscaler.model.catalogue import RegistrationRate
from autoscaler.model.cooldowns import Cooldown, RateLimit
from autoscaler.model.identifiers import RunnerName
from autoscaler.model.jobs.demand import DemandClass
from autoscaler.model.jobs.runners import RunnerState
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.machines.machine import MachineState
from tests.ledger.builders import GPU, GPU_CLASS, START, World
from tests.planner.fleets import catalogue

SLOW = catalogue(registration=RegistrationRate(burst=10, per_second=0.5))


def test_an_assignment_is_recorded_before_it_is_registered() -> None:
    world = World()
    world.make_ready()
    world.now += 5
    name = world.name("c0")
    runner, machine = world.runner(name), world.machine("c0")
    assert (name, runner.state, runner.named_at, runner.machine) == (
        "ci-0badcafe-c0-1",
        RunnerState.NAMED,
        START + 5,
        "c0",
    )
    assert (
        machine.state,
        machine.work.runner,
        machine.work.tries,
        machine.progress.assigned_at,
    ) == (
        MachineState.ASSIGNED,
        name,
        1,
        START + 5,
    )
    assert not machine.work.may_run_job
    assert world.state.idle_runners == {GPU_CLASS: 1}
    assert world.state.deregistrable == {GPU_CLASS: {name: runner}}


def test_a_machine_gets_a_second_registration_without_a_new_assignment() -> None:
    world = World()
    first = world.register(world.make_ready()[0])
    world.do(e.ConfigurationSent, first)
    world.do(e.RunnerClosed, first, "asked again")
    world.now += 5
    second = world.name("c0")
    machine = world.machine("c0")
    assert (second, machine.work.runner, machine.work.tries) == ("ci-0badcafe-c0-2", second, 2)
    assert (machine.progress.assigned_at, machine.work.may_run_job) == (START, True)


@pytest.mark.case(
    "a machine fetches its registration and does not acknowledge it: it counts as no supply after"
    " three minutes",
    topic="EC2's machines",
    source="ARC#4397",
)
def test_an_assignment_that_was_fetched_and_never_acknowledged_is_supply_for_three_minutes() -> (
    None
):
    """The machine may have ended after it fetched the assignment, so a job waits for it only so long."""
    world = World()
    world.queue(1)
    name = world.register(world.make_ready()[0])
    world.do(e.ConfigurationSent, name)
    world.after(179)
    assert world.state.idle_runners == {GPU_CLASS: 1}
    world.after(1)
    assert world.state.idle_runners == {}
    assert world.job(1).passed_over == (), "GitHub had no runner to give it to"
    assert world.runner(name).passed_over
    assert world.machine("c0").occupies


def test_after_its_registration_was_sent_a_machine_has_the_silence_limit_of_an_assigned_one() -> (
    None
):
    """A ready machine is terminated after 5 silent minutes; the runner of an assigned one is read after 15."""
    world = World()
    name = world.register(world.make_ready()[0])
    assert world.machine("c0").due == START + 300.0
    world.do(e.ConfigurationSent, name)
    assert world.machine("c0").due == START + 900.0


def test_a_runner_is_registered_then_sent_to_its_machine_then_acknowledged() -> None:
    world = World()
    name = world.register(world.make_ready()[0])
    runner, machine = world.runner(name), world.machine("c0")
    assert (runner.state, runner.github_id) == (RunnerState.REGISTERED, 7)
    world.now += 1
    world.do(e.ConfigurationSent, name)
    assert (runner.configuration_sent_at, machine.work.may_run_job) == (START + 1, True)
    assert world.state.deregistrable == {}
    world.now += 1
    world.do(e.RunnerListening, name)
    assert (runner.state, runner.listening_at) == (RunnerState.LISTENING, START + 2)
    assert runner.retry_at == START + 182.0
    assert machine.work.last_seen == START + 2
    world.now += 1
    world.do(e.RunnerListening, name)
    assert (runner.listening_at, runner.since) == (START + 2, START + 2)


def test_an_acknowledgement_before_the_registration_is_ignored() -> None:
    world = World()
    name = world.name(world.make_ready()[0])
    world.do(e.RunnerListening, name)
    assert world.runner(name).state is RunnerState.NAMED


def test_events_of_unknown_runners_change_nothing() -> None:
    world = World()
    world.ledger.take_changes()
    for event, values in (
        (e.RunnerRegistered, (7,)),
        (e.RunnerRegistrationFailed, (FailureClass.UNKNOWN, "x", START + 9)),
        (e.ConfigurationSent, ()),
        (e.RunnerListening, ()),
        (e.RunnerDeregistrationRequested, ("x",)),
        (e.RunnerDeregistered, ("x",)),
        (e.RunnerClosed, ("x",)),
    ):
        world.do(event, RunnerName("unknown"), *values)
    assert not world.ledger.take_changes()


@pytest.mark.parametrize(("retry_in", "held"), [(1.0, 30.0), (90.0, 90.0)])
def test_a_failed_registration_returns_its_machine_to_ready_and_puts_its_scope_on_hold(
    retry_in: float, held: float
) -> None:
    world = World()
    name = world.name(world.make_ready()[0])
    world.now += 2
    world.do(e.RunnerRegistrationFailed, name, FailureClass.UNKNOWN, "503", world.now + retry_in)
    machine, runner = world.machine("c0"), world.runner(name)
    assert (machine.state, machine.work.runner, machine.progress.assigned_at) == (
        MachineState.READY,
        None,
        None,
    )
    assert (machine.work.tries, machine.since) == (1, START + 2)
    assert (runner.state, runner.reason) == (RunnerState.DONE, "unknown: 503")
    assert world.state.cooldowns["register:org:acme"] == Cooldown(
        "register:org:acme", world.now + held, 1, "unknown: 503"
    )
    assert world.name("c0") == "ci-0badcafe-c0-2"


def test_a_rate_limit_of_github_is_the_error_of_the_hold_of_its_scope() -> None:
    world = World()
    name = world.name(world.make_ready()[0])
    failed = FailureClass.THROTTLED, "403", world.now + 60.0, RateLimit.PRIMARY
    world.do(e.RunnerRegistrationFailed, name, *failed)
    assert world.state.cooldowns["register:org:acme"].error == "primary_rate_limit"


def test_a_successful_registration_ends_the_hold_of_its_scope() -> None:
    world = World()
    name = world.name(world.make_ready(2)[0])
    world.do(e.RunnerRegistrationFailed, name, FailureClass.UNKNOWN, "503", START)
    world.now += 40
    world.register("c1")
    assert world.state.cooldowns["register:org:acme"] == Cooldown(
        "register:org:acme", START + 40, 0, ""
    )


def test_a_deregistered_runner_leaves_its_machine_ready() -> None:
    world = World()
    name = world.register(world.make_ready()[0])
    world.do(e.RunnerDeregistrationRequested, name, "its job is gone")
    runner, machine = world.runner(name), world.machine("c0")
    assert (runner.state, runner.reason) == (RunnerState.DEREGISTERING, "its job is gone")
    assert (machine.state, +world.state.deregistering) == (MachineState.ASSIGNED, {GPU: 1})
    assert (world.state.idle_runners, world.state.deregistrable) == ({}, {})
    world.now += 1
    world.do(e.RunnerDeregistered, name, "204")
    assert (runner.state, runner.reason) == (RunnerState.DONE, "204")
    assert (machine.state, machine.work.runner, machine.progress.ready_at) == (
        MachineState.READY,
        None,
        START,
    )
    assert (machine.reason, +world.state.deregistering) == ("204", {})


def test_a_runner_that_got_a_job_cannot_be_deregistered() -> None:
    world = World()
    name = world.ready()
    world.do(e.RunnerDeregistrationRequested, name, "too late")
    assert world.runner(name).state is RunnerState.LISTENING


@pytest.mark.case(
    "GitHub assigns a job while its runner's registration is being deleted",
    topic="Runner and listener",
    source="ARC runner_graceful_stop.go",
)
def test_a_job_may_come_while_its_runner_is_deregistered() -> None:
    world = World()
    name = world.register(world.make_ready()[0])
    world.do(e.RunnerDeregistrationRequested, name, "its job is gone")
    world.queue(1)
    world.starts(1, name)
    assert (world.runner(name).state, +world.state.deregistering) == (RunnerState.BUSY, {})


def test_a_machine_that_got_its_registration_does_not_return_to_ready() -> None:
    world = World()
    name = world.register(world.make_ready()[0])
    world.do(e.ConfigurationSent, name)
    world.do(e.RunnerDeregistered, name, "204")
    assert world.states() == {"c0": "assigned"}
    assert world.runner(name).state is RunnerState.DONE


def test_closing_an_older_registration_does_not_release_the_machine_of_a_newer_one() -> None:
    world = World()
    first = world.register(world.make_ready()[0])
    second = world.name("c0")
    world.do(e.RunnerDeregistered, first, "204")
    assert (world.runner(first).state, world.machine("c0").work.runner) == (
        RunnerState.DONE,
        second,
    )
    assert world.states() == {"c0": "assigned"}


def test_closing_an_older_registration_does_not_count_as_passed_over() -> None:
    world = World()
    first = world.register(world.make_ready()[0])
    world.queue(1)
    world.assignment("c0")
    world.now += 100
    world.do(e.RunnerClosed, first, "spent")
    assert world.job(1).passed_over == ()


def test_a_closed_registration_stays_closed() -> None:
    world = World()
    name = world.ready()
    world.do(e.RunnerClosed, name, "r" * 600)
    world.do(e.RunnerListening, name)
    world.do(e.RunnerClosed, name, "again")
    runner = world.runner(name)
    assert (runner.state, runner.reason) == (RunnerState.DONE, "r" * 500)


@pytest.mark.case(
    "1,500 registrations in 5 minutes for an organization",
    topic="GitHub's REST API",
    source="GitHub: Actions limits",
)
def test_the_registration_budget_refills_with_time_up_to_the_burst() -> None:
    world = World(SLOW)
    assert registration_level(world.state, "acme", START) == 10.0
    for number in range(4):
        world.name(world.make_ready(1, f"m{number}-")[0])
    assert registration_level(world.state, "acme", START) == 6.0
    assert registration_level(world.state, "acme", START + 3) == 7.5
    assert registration_level(world.state, "acme", START - 100) == 6.0
    assert registration_level(world.state, "acme", START + 1000) == 10.0
    world.now += 3
    world.name(world.make_ready(1, "m9-")[0])
    assert world.fleet().registrations == {"acme": 6.5}


def test_each_account_has_its_own_registration_budget() -> None:
    world = World(SLOW)
    other = DemandClass("repo:Other/widgets", "Default", ("gpu",), (GPU,))
    world.name(world.make_ready()[0], other)
    world.queue(1)
    assert world.fleet().registrations == {"acme": 10.0, "other": 9.0}


def test_the_history_shows_each_step_of_a_registration() -> None:
    world = World()
    demand = dataclasses.replace(GPU_CLASS, labels=("gpu", "linux"))
    name = world.assignment(world.make_ready()[0], demand)
    world.do(e.RunnerClosed, name, "terminated")
    rows = world.ledger.take_changes().history
    assert [(r.record, r.event, r.detail) for r in rows if r.kind == "runner"] == [
        (name, "named", "for gpu linux"),
        (name, "registered", "id 7"),
        (name, "configuration_sent", ""),
        (name, "listening", ""),
        (name, "done", "terminated"),
    ]


def test_a_registration_has_a_time_for_each_state_and_a_reason_only_when_done() -> None:
    world = World()
    (machine,) = world.make_ready()
    world.now += 1.0
    name = world.name(machine)
    assert (world.runner(name).since, world.runner(name).named_at) == (world.now, world.now)
    world.do(e.RunnerRegistered, name, 7)
    world.queue(1)
    world.starts(1, name)
    assert (world.runner(name).state, world.runner(name).reason) == (RunnerState.BUSY, "")
    assert world.runner(name).passed_over is False


def test_registrations_that_are_being_deleted_are_counted_one_by_one() -> None:
    world = World()
    names = [world.register(machine) for machine in world.make_ready(3)]
    for name in names:
        world.do(e.RunnerDeregistrationRequested, name, "its job is gone")
    assert world.fleet().deregistering == {GPU: 3}
    world.do(e.RunnerDeregistered, names[0], "deleted")
    assert world.fleet().deregistering == {GPU: 2}


def test_a_busy_runner_leaves_the_idle_count_once() -> None:
    world = World()
    first, second = (world.assignment(machine) for machine in world.make_ready(2))
    world.queue(1)
    world.starts(1, first)
    world.completes(1, runner_name=first)
    assert world.fleet().idle_runners == {GPU_CLASS: 1}
    world.do(e.RunnerClosed, second, "terminated")
    assert world.fleet().idle_runners == {}
