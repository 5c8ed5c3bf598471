"""Termination: requested, repeated, and reads at GitHub while the agent is silent."""

import pytest

from autoscaler.model import events as e
from autoscaler.model.identifiers import MachineId
from autoscaler.model.jobs.runners import RunnerState
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.machines.machine import MachineState, TerminationReason
from autoscaler.model.plan import ReadRunner, Terminate
from tests.ledger.builders import START, World

C0 = MachineId("c0")


def end(world: World, reason_code: TerminationReason = TerminationReason.IDLE) -> None:
    world.do(e.TerminationRequested, C0, reason_code, "why")


def test_a_termination_is_recorded_with_its_reason() -> None:
    world = World()
    world.make_ready()
    end(world)
    machine = world.machine("c0")
    assert (machine.state, machine.termination.reason, machine.reason) == (
        MachineState.TERMINATING,
        TerminationReason.IDLE,
        "why",
    )
    assert (machine.due, machine.termination.attempts, machine.failure) == (START + 120.0, 1, None)
    assert world.fleet().usage.machines == 1


def test_a_termination_request_is_repeated_with_backoff_up_to_ten_minutes() -> None:
    world = World()
    world.make_ready()
    for interval in (120.0, 240.0, 480.0, 600.0, 600.0):
        end(world)
        assert world.machine("c0").due == world.now + interval
        world.now += interval
    assert world.machine("c0").since == START


def test_the_first_termination_reason_is_kept() -> None:
    world = World()
    world.make_ready()
    end(world, TerminationReason.IDLE)
    end(world, TerminationReason.OPERATOR)
    assert world.machine("c0").termination.reason is TerminationReason.IDLE


def test_an_agents_report_does_not_change_when_the_termination_is_repeated() -> None:
    world = World()
    world.make_ready()
    end(world)
    world.now += 10
    world.do(e.MachineSeen, C0)
    assert world.machine("c0").due == START + 120.0


@pytest.mark.parametrize(
    ("booted", "reason_code", "failure"),
    [
        (False, TerminationReason.DEADLINE, FailureClass.BOOT_DEADLINE),
        (True, TerminationReason.DEADLINE, FailureClass.HEALTH_CHECK),
        (False, TerminationReason.OPERATOR, None),
    ],
)
def test_the_failure_class_names_the_stage_that_missed_its_deadline(
    booted: bool, reason_code: TerminationReason, failure: FailureClass | None
) -> None:
    world = World()
    world.launch(1)
    if booted:
        world.boot("c0")
    end(world, reason_code)
    assert world.machine("c0").failure is failure


def test_a_termination_closes_the_registration() -> None:
    world = World()
    runner = world.ready()
    end(world, TerminationReason.LIFETIME)
    assert world.runner(runner).state is RunnerState.DONE
    assert world.runner(runner).reason == "why"


def test_a_termination_answer_is_recorded_only_if_the_provider_refused() -> None:
    world = World()
    world.make_ready()
    end(world)
    world.ledger.take_changes()
    world.do(e.TerminationAnswered, C0)
    world.do(e.TerminationAnswered, MachineId("c9"), "error")
    assert not world.ledger.take_changes()
    world.do(e.TerminationAnswered, C0, "UnauthorizedOperation")
    (row,) = world.ledger.take_changes().history
    assert (row.event, row.detail, row.record) == (
        "termination_refused",
        "UnauthorizedOperation",
        "c0",
    )
    assert world.states() == {"c0": "terminating"}


def silent() -> World:
    """An assigned machine, silent for a quarter of an hour."""
    world = World()
    world.ready()
    world.now += 900
    return world


def read_runner(world: World, finished: bool) -> None:
    world.do(e.RunnerReadRequested, C0)
    world.do(e.RunnerRead, C0, finished, "offline")


def test_the_runner_of_a_silent_machine_is_read_again_after_a_quarter_of_an_hour() -> None:
    world = silent()
    world.do(e.RunnerReadRequested, C0)
    assert world.machine("c0").due == START + 1800.0
    world.now = START + 86_000
    world.do(e.RunnerReadRequested, C0)
    assert world.machine("c0").due == START + 86_400.0


@pytest.mark.case(
    "lists of runners are up to 60 seconds old: `busy` may be wrong",
    topic="GitHub's REST API",
    source="ARC runner_graceful_stop.go",
)
def test_two_reads_a_quarter_of_an_hour_apart_prove_that_the_work_is_over() -> None:
    world = silent()
    read_runner(world, True)
    machine = world.machine("c0")
    assert (machine.work.finished_reads, machine.work.finished_at) == (1, START + 900)
    world.now += 899.9
    read_runner(world, True)
    assert (machine.work.finished_reads, machine.work.finished_at) == (1, START + 900)
    world.now = START + 1800
    read_runner(world, True)
    assert (machine.work.finished_reads, machine.due) == (2, START + 1800)


def test_the_second_read_is_due_a_quarter_of_an_hour_after_the_first_answer() -> None:
    world = silent()
    world.do(e.RunnerReadRequested, C0)
    world.now += 3
    world.do(e.RunnerRead, C0, True, "offline")
    assert world.machine("c0").due == START + 903 + 900


@pytest.mark.case(
    "runners at work are killed",
    topic="Complaints about other fleets",
    source="GAR#5085",
)
def test_a_read_that_shows_the_runner_at_work_resets_the_count() -> None:
    world = silent()
    read_runner(world, True)
    world.now += 900
    read_runner(world, False)
    machine = world.machine("c0")
    assert (machine.work.finished_reads, machine.work.finished_at) == (0, None)
    world.now += 900
    read_runner(world, True)
    assert machine.work.finished_reads == 1


def test_a_report_of_the_machine_discards_the_finished_reads() -> None:
    world = silent()
    read_runner(world, True)
    world.do(e.MachineSeen, C0)
    machine = world.machine("c0")
    assert (machine.work.finished_reads, machine.work.finished_at) == (0, None)
    assert machine.due == START + 1800.0


def test_an_answer_about_a_machine_no_longer_assigned_is_ignored() -> None:
    world = silent()
    end(world, TerminationReason.LIFETIME)
    world.do(e.RunnerRead, C0, True, "offline")
    world.do(e.RunnerRead, MachineId("c9"), True, "offline")
    assert world.machine("c0").work.finished_reads == 0


def test_githubs_answer_enters_the_history() -> None:
    world = silent()
    world.ledger.take_changes()
    read_runner(world, True)
    (row,) = world.ledger.take_changes().history
    assert (row.kind, row.event, row.detail) == ("machine", "runner_read", "offline")


def test_the_reason_for_the_end_of_a_registration_is_cut_to_500_characters() -> None:
    world = World()
    (machine,) = world.make_ready()
    name = world.assignment(machine)
    world.do(e.TerminationRequested, machine, TerminationReason.LIFETIME, "x" * 1000)
    assert len(world.runner(name).reason) == 500


def test_a_lost_machine_that_is_listed_again_keeps_its_lifetime() -> None:
    world = World()
    (machine,) = world.make_ready()
    world.assignment(machine)
    assigned = world.now
    shown = world.listed(machine)
    for _ in range(2):
        world.now += 60.0
        world.lists()
    world.now += 60.0
    world.lists(shown)
    assert world.machine(machine).state is MachineState.ASSIGNED
    world.now = assigned + 86_000.0
    world.do(e.MachineSeen, machine)
    assert world.machine(machine).due == assigned + 86_400.0


@pytest.mark.case(
    "a listener that exits without a job is not a failure",
    topic="Runner and listener",
    source="actions/runner#4726",
)
def test_a_runner_that_leaves_within_a_minute_passed_over_no_job() -> None:
    world = World()
    world.queue(1)
    (machine,) = world.make_ready()
    world.now += 600.0
    world.assignment(machine)
    world.now += 59.0
    world.do(e.MachineExited, machine, "status 0")
    assert world.job(1).passed_over == ()


# --- a job that stops its listener and worker, while the agent sends heartbeats -------------------


def stopped() -> World:
    """GitHub shows the job as completed, and the agent sends a heartbeat every minute."""
    world = World()
    world.queue(1)
    runner = world.ready()
    world.starts(1, runner)
    world.completes(1, conclusion="failure", runner_name=runner)
    return world


def heartbeats(world: World, seconds: float) -> None:
    """Send a heartbeat each minute, without planning."""
    for _ in range(round(seconds / 60)):
        world.now += 60
        world.do(e.MachineSeen, C0)


def unregistered(world: World, gone: bool = True) -> None:
    world.do(e.RunnerReadRequested, C0)
    world.do(e.RunnerRead, C0, gone, "404", gone)


@pytest.mark.case(
    "a job stops its listener and worker with SIGSTOP: its machine is terminated half an hour "
    "after the job, although its agent reports",
    topic="Hostile input",
    source="signal(7)",
)
def test_a_machine_that_stays_after_its_job_is_terminated_after_half_an_hour() -> None:
    world = stopped()
    heartbeats(world, 840)
    assert world.plan().intents == ()
    heartbeats(world, 60)
    assert world.intents(ReadRunner) == [ReadRunner(C0)]
    unregistered(world)
    assert world.plan().intents == ()
    heartbeats(world, 840)
    assert world.plan().intents == ()
    heartbeats(world, 60)
    assert world.intents(ReadRunner) == [ReadRunner(C0)]
    unregistered(world)
    (end,) = world.intents(Terminate)
    assert (end.reason_code, world.now) == (TerminationReason.FINISHED, START + 1800)
    world.do(e.MachineSeen, C0)
    assert world.intents(Terminate) == [end]


def test_a_machine_is_kept_and_read_again_while_its_registration_may_exist() -> None:
    """An answer that proves nothing resets the count: unknown means keep."""
    world = stopped()
    for answers in ((True, False), (False, True), (False, False), (True, False)):
        for gone in answers:
            heartbeats(world, 900)
            assert world.intents(ReadRunner) == [ReadRunner(C0)]
            unregistered(world, gone)
            assert world.intents(Terminate) == []


def test_the_runner_of_a_machine_with_heartbeats_and_a_running_job_is_not_read() -> None:
    world = World()
    world.queue(1)
    world.starts(1, world.ready())
    heartbeats(world, 7200)
    assert world.plan().intents == ()
    for _ in range(2):
        unregistered(world)
        heartbeats(world, 900)
    assert world.intents(Terminate) == []


def test_an_unanswered_read_of_a_runner_is_repeated_a_quarter_of_an_hour_later() -> None:
    world = stopped()
    heartbeats(world, 900)
    world.do(e.RunnerReadRequested, C0)
    heartbeats(world, 840)
    assert world.plan().intents == ()
    heartbeats(world, 60)
    assert world.intents(ReadRunner) == [ReadRunner(C0)]


def test_two_reads_close_together_count_once() -> None:
    world = stopped()
    heartbeats(world, 1800)
    unregistered(world)
    heartbeats(world, 60)
    unregistered(world)
    assert world.intents(Terminate) == []


def test_an_early_read_does_not_shorten_the_half_hour_after_the_job() -> None:
    """The agent was silent when GitHub showed the job as completed, and then sends heartbeats again."""
    world = World()
    world.queue(1)
    runner = world.ready()
    world.starts(1, runner)
    world.now += 870
    world.completes(1, runner_name=runner)
    world.now += 30
    unregistered(world)
    heartbeats(world, 900)
    unregistered(world)
    assert world.intents(Terminate) == []
    heartbeats(world, 900)
    unregistered(world)
    assert [end.reason_code for end in world.intents(Terminate)] == [TerminationReason.FINISHED]


def test_the_reads_of_a_machine_that_stays_after_its_job_survive_a_restart() -> None:
    world = stopped()
    heartbeats(world, 900)
    unregistered(world)
    world.restart(10.0)
    heartbeats(world, 900)
    unregistered(world)
    assert [end.reason_code for end in world.intents(Terminate)] == [TerminationReason.FINISHED]
