"""What operators pause, drain and quarantine: what is planned for it, and what is not."""

import dataclasses

import pytest

from autoscaler.model import events as e
from autoscaler.model.catalogue import IdlePolicy
from autoscaler.model.identifiers import MachineId
from autoscaler.model.machines.machine import MachineState, TerminationReason
from autoscaler.model.operators import (
    WHOLE_FLEET,
    HoldKind,
    HoldTarget,
    machine_target,
    provider_target,
    sku_target,
)
from autoscaler.model.plan import Assign, DeregisterRunner, Launch, Terminate
from autoscaler.model.reasons.table import WaitCode
from tests.ledger.builders import ALICE, GPU, GPU_CLASS, World
from tests.planner.fleets import EAST, catalogue, sku

C0 = MachineId("c0")
DRAIN, PAUSE, QUARANTINE = HoldKind.DRAINED, HoldKind.PAUSED, HoldKind.QUARANTINED
GROUPS = [WHOLE_FLEET, sku_target(GPU), provider_target(EAST)]


def hold(world: World, kind: HoldKind, target: HoldTarget) -> None:
    world.do(e.HeldByOperator, kind, target, ALICE)


def terminated(world: World) -> list[tuple[str, TerminationReason]]:
    return [(one.machine, one.reason_code) for one in world.intents(Terminate)]


@pytest.mark.parametrize("target", GROUPS)
def test_nothing_is_launched_for_what_is_paused_and_its_jobs_say_so(target: HoldTarget) -> None:
    world = World()
    world.queue(1)
    hold(world, PAUSE, target)
    assert world.intents(Launch) == []
    (run,) = world.plan().waiting[GPU_CLASS]
    (reason,) = run.reasons
    assert (run.blocked, reason.code, reason.until) == (True, WaitCode.PAUSED, None)
    assert "paused by alice since 1970-01-01 00:16Z" in reason.message
    assert f"`autoscaler resume {target}` ends this" in reason.message
    world.do(e.ResumedByOperator, target, ALICE)
    assert len(world.intents(Launch)) == 1


def test_another_sku_is_launched_while_one_is_paused() -> None:
    world = World(catalogue(sku(), sku("cpu")))
    world.queue(1)
    world.queue(2, labels=("cpu",))
    hold(world, PAUSE, sku_target(GPU))
    assert [one.sku for one in world.intents(Launch)] == ["cpu"]


def test_machines_of_a_paused_sku_still_run_jobs() -> None:
    world = World()
    world.make_ready(1)
    hold(world, PAUSE, sku_target(GPU))
    world.queue(1)
    assert [one.machine for one in world.intents(Assign)] == ["c0"]
    assert terminated(world) == []


def test_no_ready_minimum_is_kept_while_paused() -> None:
    world = World(catalogue(sku(idle=IdlePolicy(minimum=2))))
    hold(world, PAUSE, provider_target(EAST))
    assert world.plan().intents == ()


@pytest.mark.parametrize("target", [sku_target(GPU), provider_target(EAST)])
def test_a_drain_terminates_machines_without_a_job_and_no_others(target: HoldTarget) -> None:
    world = World()
    world.ready("w")
    world.make_ready(1, "r")
    world.launch(1, "l")
    world.queue(1)
    hold(world, DRAIN, target)
    drained = TerminationReason.DRAINED
    assert sorted(terminated(world)) == [("l0", drained), ("r0", drained)]
    assert world.intents(Assign) == world.intents(Launch) == []
    world.carry_out()
    assert terminated(world) == []
    assert world.machine("w0").state is MachineState.ASSIGNED


def test_a_machine_that_is_launched_during_a_drain_is_terminated_then() -> None:
    world = World()
    world.send(1)
    hold(world, DRAIN, sku_target(GPU))
    assert terminated(world) == []
    world.answer("c", "i-c0")
    assert terminated(world) == [("c0", TerminationReason.DRAINED)]


def test_a_job_gets_another_machine_instead_of_a_drained_one() -> None:
    world = World()
    world.make_ready(1)
    world.queue(1)
    hold(world, DRAIN, machine_target(C0))
    assert terminated(world) == [("c0", TerminationReason.DRAINED)]
    assert world.intents(Assign) == []
    assert [one.count for one in world.intents(Launch)] == [1]


def test_a_registration_that_a_drained_machine_never_got_is_deleted() -> None:
    world = World()
    world.make_ready(1)
    world.queue(1)
    name = world.register("c0")
    hold(world, DRAIN, machine_target(C0))
    assert [one.runner for one in world.intents(DeregisterRunner)] == [name]
    assert [one.count for one in world.intents(Launch)] == [1]
    world.do(e.RunnerDeregistrationRequested, name, "drained")
    world.do(e.RunnerDeregistered, name, "deleted")
    assert terminated(world) == [("c0", TerminationReason.DRAINED)]


def test_a_drain_waits_for_proof_that_a_machine_from_before_the_start_is_unused() -> None:
    world = World()
    world.make_ready(1)
    world.restart(10.0)
    hold(world, DRAIN, machine_target(C0))
    assert terminated(world) == []
    world.do(e.MachineSeen, C0, True)
    assert terminated(world) == [("c0", TerminationReason.DRAINED)]


def test_a_quarantined_machine_gets_no_job_and_outlasts_every_deadline() -> None:
    idle = IdlePolicy(timeout=60.0, max_age=120.0)
    lifetime = dataclasses.replace(sku(idle=idle), lifetime=7200.0)
    world = World(catalogue(lifetime))
    world.make_ready(1)
    hold(world, QUARANTINE, machine_target(C0))
    world.queue(1)
    assert world.intents(Assign) == []
    assert [one.count for one in world.intents(Launch)] == [1]
    world.completes(1)
    world.after(7199.0)
    assert terminated(world) == []
    world.after(1.0)
    (one,) = world.intents(Terminate)
    assert (one.machine, one.reason_code) == ("c0", TerminationReason.LIFETIME)
    assert one.reason == "its quarantine is over"


def test_a_quarantined_machine_survives_a_drain_a_restart_and_the_removal_of_its_sku() -> None:
    world = World()
    world.make_ready(1)
    hold(world, QUARANTINE, machine_target(C0))
    hold(world, DRAIN, sku_target(GPU))
    assert terminated(world) == []
    world.restart(10.0)
    world.do(e.MachineSeen, C0, True)
    assert terminated(world) == []
    world.ledger.replace_catalogue(catalogue(sku("cpu")))
    assert terminated(world) == []


def test_a_quarantined_machine_that_fails_its_health_checks_is_kept() -> None:
    world = World()
    world.launch(1)
    hold(world, QUARANTINE, machine_target(C0))
    world.boot("c0")
    world.do(e.HealthChecksReported, C0, False, "no GPU")
    world.after(3600.0)
    assert world.machine("c0").state is MachineState.FAILED
    assert terminated(world) == []
    world.do(e.MachineReleasedByOperator, C0, ALICE)
    assert terminated(world) == [("c0", TerminationReason.OPERATOR)]


@pytest.mark.parametrize("state", ["ready", "quarantined", "assigned", "exited"])
def test_a_machine_that_an_operator_terminates_is_terminated_at_once(state: str) -> None:
    world = World()
    if state in ("assigned", "exited"):
        world.ready("c")
        if state == "exited":
            world.do(e.MachineExited, C0, "bye")
    else:
        world.make_ready(1)
        if state == "quarantined":
            hold(world, QUARANTINE, machine_target(C0))
    world.do(e.MachineReleasedByOperator, C0, ALICE)
    assert terminated(world) == [("c0", TerminationReason.OPERATOR)]


def test_a_resumed_machine_is_used_again() -> None:
    world = World()
    world.make_ready(1)
    world.queue(1)
    hold(world, QUARANTINE, machine_target(C0))
    world.do(e.ResumedByOperator, machine_target(C0), ALICE)
    assert [one.machine for one in world.intents(Assign)] == ["c0"]
