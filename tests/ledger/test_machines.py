"""Reports of agents, and the deadlines of every state, extended by downtime."""

import dataclasses

import pytest

from autoscaler.ledger.machines.states import move
from autoscaler.model import events as e
from autoscaler.model.catalogue import Deadlines
from autoscaler.model.identifiers import MachineId, SkuName
from autoscaler.model.jobs.runners import RunnerState
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.machines.machine import MachineState
from tests.ledger.builders import START, World
from tests.planner.fleets import catalogue, sku

SHORT = dataclasses.replace(
    sku(), deadlines=Deadlines(boot=100.0, health_checks=50.0, ready_silence=20.0), lifetime=5000.0
)


def at_stage(stage: str, world: World) -> World:
    """One machine `c0` that came to this stage just now."""
    world.launch(1)
    if stage != "launched":
        world.boot("c0")
    if stage in ("ready", "assigned", "exited"):
        world.do(e.HealthChecksReported, MachineId("c0"), True, "ok")
    if stage in ("assigned", "exited"):
        world.assignment("c0")
    if stage == "exited":
        world.do(e.MachineExited, MachineId("c0"), "bye")
    return world


DEADLINES = [
    ("launched", 900.0, 100.0),
    ("booted", 600.0, 50.0),
    ("ready", 300.0, 20.0),
    ("assigned", 900.0, 900.0),
    ("exited", 120.0, 120.0),
]


@pytest.mark.parametrize(("stage", "default", "short"), DEADLINES)
def test_every_stage_has_its_deadline(stage: str, default: float, short: float) -> None:
    assert at_stage(stage, World()).machine("c0").due == START + default
    assert at_stage(stage, World(catalogue(SHORT))).machine("c0").due == START + short


@pytest.mark.parametrize(("stage", "default", "short"), DEADLINES)
def test_only_the_boot_deadline_is_later_by_the_wait_for_a_host(
    stage: str, default: float, short: float
) -> None:
    waiting = tuple(dataclasses.replace(one, longest_wait=40.0) for one in SHORT.launch_options)
    world = at_stage(stage, World(catalogue(dataclasses.replace(SHORT, launch_options=waiting))))
    later = 40.0 if stage == "launched" else 0.0
    assert world.machine("c0").due == START + short + later
    assert default >= short


@pytest.mark.parametrize(("stage", "default", "short"), DEADLINES)
def test_the_controllers_downtime_extends_a_deadline_up_to_three_times_its_length(
    stage: str, default: float, short: float
) -> None:
    world = at_stage(stage, World())
    world.restart(100.0)
    assert world.machine("c0").due == START + default + min(100.0, 2 * default)
    world.restart(3 * default)
    # These deadlines count from the start: agents need time to poll, and listings to show a job.
    since_start = {"launched": 300.0, "booted": 300.0, "ready": default}
    until = world.now + since_start[stage] if stage in since_start else 0.0
    assert world.machine("c0").due == max(START + 3 * default, until)


def test_a_machine_of_a_sku_that_left_the_configuration_has_the_defaults() -> None:
    world = World(catalogue(SHORT))
    for stage, default, _ in DEADLINES:
        other = at_stage(stage, World(catalogue(SHORT)))
        machine = other.machine("c0")
        with other.state.changing(machine):
            machine.sku = SkuName("retired")
        other.do(e.MachineSeen, machine.id)
        assert machine.due == START + default
    assert world.states() == {}


def test_a_slot_and_a_terminated_machine_have_no_deadline() -> None:
    world = World()
    world.send(1)
    assert world.machine("c0").due is None
    world.answer("c", "i-1")
    world.lists(dataclasses.replace(world.listed("c0"), terminated=True))
    assert world.machine("c0").due is None


def test_an_attestation_boots_the_machine_and_stores_its_nonce() -> None:
    world = at_stage("launched", World())
    world.now += 40
    world.do(e.MachineAttested, MachineId("c0"), "hash-1")
    machine = world.machine("c0")
    assert (machine.state, machine.since, machine.progress.booted_at) == (
        MachineState.BOOTED,
        START + 40,
        START + 40,
    )
    assert (machine.nonce_hash, machine.work.agent_seen, machine.work.last_seen) == (
        "hash-1",
        True,
        START + 40,
    )


def test_a_second_attestation_brings_a_new_nonce_but_no_new_deadline() -> None:
    world = at_stage("booted", World())
    world.now += 200
    world.do(e.MachineAttested, MachineId("c0"), "hash-2")
    machine = world.machine("c0")
    assert (machine.state, machine.nonce_hash, machine.progress.booted_at) == (
        MachineState.BOOTED,
        "hash-2",
        START,
    )
    assert (machine.since, machine.due) == (START, START + 600.0)


def test_a_ready_machine_that_attests_again_must_pass_its_health_checks_again() -> None:
    world = at_stage("ready", World())
    world.now += 10
    world.boot("c0")
    assert world.states() == {"c0": "booted"}
    assert world.machine("c0").due == START + 610.0


def test_a_stage_report_shows_life_but_extends_no_deadline() -> None:
    world = at_stage("booted", World())
    world.now += 30
    world.do(e.MachineReportedStage, MachineId("c0"), "driver")
    machine = world.machine("c0")
    assert (machine.progress.stage, machine.work.last_seen, machine.due) == (
        "driver",
        START + 30,
        START + 600.0,
    )


def test_a_machine_becomes_ready_when_its_health_checks_pass() -> None:
    world = at_stage("booted", World())
    world.now += 30
    world.do(e.HealthChecksReported, MachineId("c0"), True, "4 checks")
    machine = world.machine("c0")
    assert (machine.state, machine.progress.ready_at, machine.reason) == (
        MachineState.READY,
        START + 30,
        "checks passed: 4 checks",
    )
    assert (machine.due, machine.work.last_seen) == (START + 330.0, START + 30)


def test_a_machine_with_failed_health_checks_still_counts_until_terminated() -> None:
    world = at_stage("booted", World())
    world.do(e.HealthChecksReported, MachineId("c0"), False, "no GPU")
    machine = world.machine("c0")
    assert (machine.state, machine.failure, machine.reason) == (
        MachineState.FAILED,
        FailureClass.HEALTH_CHECK,
        "no GPU",
    )
    assert machine.due == START
    assert world.fleet().usage.machines == 1


@pytest.mark.parametrize("stage", ["launched", "ready", "assigned", "exited"])
@pytest.mark.parametrize("passed", [True, False])
def test_a_health_check_report_in_the_wrong_state_changes_nothing(stage: str, passed: bool) -> None:
    world = at_stage(stage, World())
    world.do(e.HealthChecksReported, MachineId("c0"), passed, "late")
    assert world.states() == {"c0": stage}


@pytest.mark.parametrize("passed", [True, False])
def test_health_checks_after_a_reboot_keep_or_end_the_registration(passed: bool) -> None:
    world = World()
    runner = world.register(world.make_ready()[0])
    world.boot("c0")
    world.do(e.HealthChecksReported, MachineId("c0"), passed, "no GPU")
    assert world.states() == {"c0": "assigned" if passed else "failed"}
    expected = RunnerState.REGISTERED if passed else RunnerState.DONE
    assert world.runner(runner).state is expected


@pytest.mark.parametrize(("stage", "silence"), [("ready", 300.0), ("assigned", 900.0)])
def test_a_message_from_the_machine_extends_its_silence_deadline(
    stage: str, silence: float
) -> None:
    world = at_stage(stage, World())
    world.now += 250
    world.do(e.MachineSeen, MachineId("c0"))
    machine = world.machine("c0")
    assert (machine.work.last_seen, machine.due) == (START + 250, START + 250 + silence)
    world.restart(100.0)
    assert world.machine("c0").due == START + 250 + silence + 100.0
    world.do(e.MachineSeen, MachineId("c0"))
    assert (machine := world.machine("c0")).absence == 0.0
    assert machine.due == START + 350 + silence


def test_a_report_while_booting_keeps_the_downtime_in_the_deadline() -> None:
    world = at_stage("booted", World())
    world.restart(100.0)
    world.do(e.MachineSeen, MachineId("c0"))
    assert (world.machine("c0").absence, world.machine("c0").due) == (100.0, START + 700.0)


def test_a_report_of_an_unknown_machine_is_ignored() -> None:
    world = World()
    world.do(e.MachineSeen, MachineId("c9"))
    assert world.states() == {}


@pytest.mark.parametrize(
    ("event", "values"),
    [
        (e.MachineAttested, ("hash",)),
        (e.MachineReportedStage, ("boot",)),
        (e.HealthChecksReported, (True, "ok")),
        (e.MachineExited, ("bye",)),
    ],
)
def test_events_that_need_a_known_machine_raise_key_error_without_it(
    event: type[e.Event], values: tuple[object, ...]
) -> None:
    with pytest.raises(KeyError):
        World().do(event, MachineId("c9"), *values)


def test_the_lifetime_is_the_last_deadline_of_an_assigned_machine() -> None:
    world = at_stage("assigned", World(catalogue(SHORT)))
    world.now += 4500
    world.do(e.MachineSeen, MachineId("c0"))
    assert world.machine("c0").due == START + 5000.0


def test_an_exit_gives_the_machine_two_minutes_and_closes_its_runner() -> None:
    world = at_stage("assigned", World())
    world.now += 60
    world.do(e.MachineExited, MachineId("c0"), "exit 0")
    machine = world.machine("c0")
    assert (machine.state, machine.reason, machine.due) == (
        MachineState.EXITED,
        "exit 0",
        START + 180.0,
    )
    runner = world.runner("ci-0badcafe-c0-1")
    assert (runner.state, runner.since, runner.reason) == (
        RunnerState.DONE,
        START + 60,
        "exit 0",
    )


@pytest.mark.parametrize("stage", ["launched", "booted", "ready", "exited"])
def test_only_an_assigned_machine_exits(stage: str) -> None:
    world = at_stage(stage, World())
    world.now += 60
    world.do(e.MachineExited, MachineId("c0"), "bye")
    assert world.states() == {"c0": stage}
    assert world.machine("c0").since == START


def test_a_transition_that_is_not_in_the_table_raises() -> None:
    world = at_stage("launched", World())
    with pytest.raises(ValueError, match="machine c0: no transition from launched to ready"):
        move(world.state, world.machine("c0"), MachineState.READY, START)


def test_boot_time_is_measured_from_request_to_ready_without_the_downtime() -> None:
    world = World()
    world.send(1, "a")
    world.now += 5
    world.answer("a", "i-1")
    world.now += 45
    world.boot("a0")
    world.restart(1000.0)
    world.now += 10
    world.do(e.HealthChecksReported, MachineId("a0"), True, "ok")
    assert world.state.boot_seconds == {"gpu": 60.0}
    world.launch(1, "b")
    world.now += 110
    world.boot("b0")
    world.do(e.HealthChecksReported, MachineId("b0"), True, "ok")
    assert world.state.boot_seconds == {"gpu": 70.0}


def test_a_second_boot_does_not_change_the_learned_boot_time() -> None:
    world = at_stage("ready", World())
    world.now += 3000
    world.boot("c0")
    world.do(e.HealthChecksReported, MachineId("c0"), True, "ok")
    assert world.state.boot_seconds == {"gpu": 0.0}


def test_history_is_bounded() -> None:
    world = at_stage("booted", World())
    world.ledger.take_changes()
    world.do(e.MachineReportedStage, MachineId("c0"), "s" * 600)
    world.do(e.HealthChecksReported, MachineId("c0"), False, "g" * 600)
    assert [len(row.detail) for row in world.ledger.take_changes().history] == [500] * 3
    assert len(world.machine("c0").reason) == 500
