"""A job's wait by stage: the stages of the machine that ran it, which add up to the wait."""

from autoscaler.ledger.jobs.job_waits import wait_stages
from autoscaler.model import events as e
from autoscaler.model.accounting import WaitStage
from autoscaler.model.identifiers import MachineId
from tests.ledger.builders import START, World

C0 = MachineId("c0")
S = WaitStage


def stages(world: World, job: int, started_at: float) -> dict[WaitStage, float]:
    """Return the stages of a job's wait that are not empty. They add up to the wait."""
    found: dict[WaitStage, float] = {}
    for stage, seconds in wait_stages(world.state, world.job(job), started_at):
        found[stage] = found.get(stage, 0.0) + seconds
    assert sum(found.values()) == started_at - world.job(job).queued_at
    return {stage: seconds for stage, seconds in found.items() if seconds}


def at(world: World, seconds: float) -> None:
    world.now = START + seconds


def boots(world: World, recorded: float) -> None:
    """A machine is requested, answered after 2 s, booted after 30 s more and ready after 10 s more."""
    at(world, recorded)
    world.send(1)
    at(world, recorded + 2.0)
    world.answer("c", "i-c0")
    at(world, recorded + 32.0)
    world.do(e.MachineAttested, C0, "nonce")
    at(world, recorded + 42.0)
    world.do(e.HealthChecksReported, C0, True, "ok")


def registers(world: World, named: float, listening: float, started: float) -> str:
    at(world, named)
    name = world.name("c0")
    world.do(e.RunnerRegistered, name, 7)
    world.do(e.ConfigurationSent, name)
    at(world, listening)
    world.do(e.RunnerListening, name)
    at(world, started)
    world.starts(1, name)
    return name


def test_the_wait_for_a_new_machine_has_every_stage() -> None:
    world = World()
    world.queue(1)
    boots(world, 5.0)
    registers(world, 50.0, 53.0, 57.0)
    assert stages(world, 1, START + 57.0) == {
        S.DECIDE: 5.0 + 3.0,  # before the request, and between ready (47) and the registration (50)
        S.LAUNCH: 2.0,
        S.BOOT: 30.0,
        S.HEALTH_CHECKS: 10.0,
        S.REGISTER: 3.0,
        S.PICK_UP: 4.0,
    }


def test_a_job_that_takes_a_ready_machine_spends_nothing_on_its_launch() -> None:
    world = World()
    boots(world, 0.0)
    at(world, 100.0)
    world.queue(1)
    registers(world, 101.0, 104.0, 109.0)
    assert stages(world, 1, START + 109.0) == {S.DECIDE: 1.0, S.REGISTER: 3.0, S.PICK_UP: 5.0}


def test_a_job_that_takes_the_booting_machine_of_another_waits_for_the_rest_of_its_boot() -> None:
    world = World()
    world.send(1)
    at(world, 2.0)
    world.answer("c", "i-c0")
    at(world, 20.0)
    world.queue(1)
    at(world, 32.0)
    world.do(e.MachineAttested, C0, "nonce")
    at(world, 42.0)
    world.do(e.HealthChecksReported, C0, True, "ok")
    registers(world, 42.0, 45.0, 46.0)
    assert stages(world, 1, START + 46.0) == {
        S.BOOT: 12.0,
        S.HEALTH_CHECKS: 10.0,
        S.REGISTER: 3.0,
        S.PICK_UP: 1.0,
    }


def test_a_runner_that_listened_before_the_job_was_queued_only_picks_it_up() -> None:
    world = World()
    boots(world, 0.0)
    name = world.assignment(C0)
    at(world, 200.0)
    world.queue(1)
    at(world, 203.0)
    world.starts(1, name)
    assert stages(world, 1, START + 203.0) == {S.PICK_UP: 3.0}


def test_the_wait_for_a_runner_that_the_controller_does_not_know_is_one_stage() -> None:
    world = World()
    world.queue(1)
    at(world, 30.0)
    world.starts(1, "of-another-fleet")
    assert stages(world, 1, START + 30.0) == {S.OTHER: 30.0}


def test_a_start_before_its_milestones_by_githubs_clock_has_no_negative_stage() -> None:
    """GitHub's times are whole seconds of another clock."""
    world = World()
    world.queue(1)
    boots(world, 0.5)
    registers(world, 43.0, 44.0, 44.0)
    assert stages(world, 1, START + 43.0)[S.HEALTH_CHECKS] == 10.0
    assert stages(world, 1, START + 20.0) == {S.DECIDE: 0.5, S.LAUNCH: 2.0, S.BOOT: 17.5}
