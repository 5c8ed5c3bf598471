"""What is announced to a waiting job, where `test_situations.py` has no simulated cause."""

import dataclasses
from collections.abc import Callable

import pytest

from autoscaler.model import events as e
from autoscaler.model.catalogue import Access
from autoscaler.model.identifiers import JobId, MachineId
from autoscaler.model.jobs.job import Admission, JobState, RunOrigin
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.operators import (
    WHOLE_FLEET,
    HoldKind,
    HoldTarget,
    provider_target,
    sku_target,
)
from autoscaler.model.plan import Launch
from autoscaler.model.reasons.table import WaitCode
from autoscaler.model.reasons.waiting import WaitReason
from autoscaler.views.jobs.explanation import Explanation, explain_job
from autoscaler.views.jobs.waits import Wait, next_event
from tests.ledger.builders import ALICE, GPU, World, failure, listed
from tests.planner.fleets import EAST, catalogue, sku

FORK = RunOrigin(from_fork=True, public=False, branch=None)
WITHOUT_TIME = {
    WaitCode.MAX_MACHINES,
    WaitCode.FLEET_MACHINES,
    WaitCode.FLEET_DOLLARS,
    WaitCode.FAIR_SHARE,
    WaitCode.QUOTA,
    WaitCode.CIRCUIT_OPEN,
    WaitCode.NO_OFFERING,
    WaitCode.NOT_PLANNED,
}
"""Reasons that end by themselves, at a time that the controller may not know."""

CLOSED = dataclasses.replace(sku(), access=Access(forks=False))


def explained(world: World, job: int = 1) -> Explanation:
    return explain_job(world.fleet(), world.plan().waiting, world.job(job))


def expect(world: World, code: WaitCode, job: int = 1) -> float:
    """Return when the next event is announced for a job that waits for this reason."""
    found = explained(world, job)
    assert found.job is not None
    assert found.job.wait is not None
    assert found.next_event is not None
    assert found.job.wait.code is code
    assert found.next_event.at is not None, found.next_event
    return found.next_event.at


def comes_true(world: World, at: float, happens: Callable[[], bool]) -> None:
    """Check that it has not happened just before the announced time, and happens then."""
    world.after(max(0.0, at - 0.001 - world.now))
    assert not happens()
    world.after(max(0.0, at - world.now))
    assert happens()


def launches(world: World) -> bool:
    return bool(world.intents(Launch))


def test_a_planned_launch_is_sent_now() -> None:
    world = World()
    world.queue(1)
    assert expect(world, WaitCode.LAUNCH_PLANNED) == world.now
    assert launches(world)


def test_each_job_in_line_is_announced_a_booting_machine_of_its_own() -> None:
    world = World()
    world.queue(1, 2)
    world.launch(1, "a")
    world.after(10.0)
    world.launch(1, "b")
    machines = [explained(world, job).next_event for job in (1, 2)]
    assert [one.machine for one in machines if one is not None] == ["a0", "b0"]


@pytest.mark.parametrize(
    ("kind", "target", "words"),
    [
        (HoldKind.PAUSED, WHOLE_FLEET, "all is paused by alice since "),
        (HoldKind.DRAINED, sku_target(GPU), "sku/gpu is drained by alice since "),
        (HoldKind.PAUSED, provider_target(EAST), "provider/east is paused by alice since "),
    ],
)
def test_no_offering_may_be_launched_where_an_operator_holds_it(
    kind: HoldKind, target: HoldTarget, words: str
) -> None:
    world = World()
    world.queue(1)
    world.send(1)
    world.answer("c", failures=[failure(FailureClass.CAPACITY)])
    world.do(e.HeldByOperator, kind, target, ALICE)
    tried = explained(world).tried
    assert tried
    for one in tried:
        assert one.on_hold.startswith(words)
        assert (one.until, one.failures) == (None, 1)
    world.do(e.ResumedByOperator, target, ALICE)
    assert {one.on_hold for one in explained(world).tried} == {"Code: words"}


def test_an_offering_behind_an_open_circuit_breaker_has_the_end_of_its_hold() -> None:
    world = World()
    world.queue(1)
    for name in ("a", "b", "c"):
        world.launch(1, name)
        world.boot(f"{name}0")
        world.do(e.HealthChecksReported, MachineId(f"{name}0"), False, "gpu_count: 7 of 8")
    hardware, circuit = explained(world).tried
    # The type of the first machine is on hold for longer than the launch option: its host may be faulty.
    assert (hardware.on_hold, hardware.until) == (
        "hardware of a0: gpu_count: 7 of 8",
        world.now + 600.0,
    )
    assert circuit.on_hold == "health checks: gpu_count: 7 of 8"
    assert (circuit.failures, circuit.until) == (3, world.now + 30.0)
    # After it, a probe may be launched, and the breaker is still open.
    world.after(30.0)
    _, circuit = explained(world).tried
    assert circuit.on_hold == "health checks: gpu_count: 7 of 8"
    assert (circuit.failures, circuit.until) == (3, None)


def test_after_too_many_exits_without_a_job_the_probe_comes_at_the_announced_time() -> None:
    world = World()
    world.queue(1)
    for name in ("a", "b", "c"):
        world.ready(name)
        world.do(e.MachineExited, f"{name}0", "it left")
        world.lists(*(world.listed(f"{m}0", terminated=True) for m in ("a", "b", "c") if m <= name))
        world.observe(1, JobState.QUEUED, read=True)
    at = expect(world, WaitCode.CIRCUIT_OPEN)
    comes_true(world, at, lambda: launches(world))


def test_github_fails_a_refused_job_after_a_day() -> None:
    world = World(catalogue(CLOSED))
    world.observe(1, JobState.QUEUED, run_id=7)
    world.do(e.RunRead, 7, FORK)
    at = expect(world, WaitCode(Admission.FORK.value))
    comes_true(world, at, lambda: world.state.jobs[JobId(1)].state is JobState.COMPLETED)


def test_every_code_has_a_next_event() -> None:
    world = World()
    world.queue(1)
    for code in WaitCode:
        reasons = (WaitReason(code, words="words"),)
        found = next_event(world.fleet(), world.job(1), Wait(1, 1, 1, reasons, blocked=True))
        assert found.what, code
        if code in WITHOUT_TIME:
            assert "an operator has to act" not in found.what, code


ANNOUNCED = {
    WaitCode.RUNNER_IDLE: "GitHub assigns the job to an idle runner",
    WaitCode.MACHINE_READY: "the runner of a ready machine registers at GitHub",
    WaitCode.MACHINE_BOOTING: "a machine becomes ready",
    WaitCode.LAUNCH_PLANNED: "the controller sends a launch request",
    WaitCode.REGISTRATION_RATE: "github.registrations allows a runner for the job",
    WaitCode.REGISTRATION_ON_HOLD: "the controller tries to register a runner at GitHub again",
    WaitCode.JOB_UNCONFIRMED: "the controller asks GitHub for the job's state",
    WaitCode.NOT_ASSIGNED: (
        "the runner group admits the repository; the controller reads it every minute"
    ),
    WaitCode.RUN_UNKNOWN: "the controller asks GitHub for the job's run",
    WaitCode.FORK_NOT_ALLOWED: "GitHub fails the job, because no runner took it for a day",
    WaitCode.MAX_MACHINES: "a machine of the SKU ends, or an operator raises max_machines",
    WaitCode.FLEET_MACHINES: "a machine ends, or an operator raises limits.machines",
    WaitCode.FLEET_DOLLARS: "machines end, or an operator raises limits.dollars_per_hour",
    WaitCode.FAIR_SHARE: "a job of the repository ends, or the others have got their machines",
    WaitCode.QUOTA: "a machine under the quota ends, or the provider raises the quota",
    WaitCode.PAUSED: "an operator resumes what is paused",
    WaitCode.CIRCUIT_OPEN: "the probe machine becomes ready, gets a job or fails",
    WaitCode.NO_OFFERING: "the controller can read a provider of the SKU; it tries every minute",
    WaitCode.NOT_PLANNED: "the controller plans, within seconds",
    WaitCode.CONFIGURATION: "an operator has to act on the reason",
}
"""What is announced for a reason alone, without a machine or a runner that can end it."""

ESTIMATES = {WaitCode.MACHINE_READY, WaitCode.REGISTRATION_RATE}
NOW = {WaitCode.LAUNCH_PLANNED, WaitCode.JOB_UNCONFIRMED, WaitCode.RUN_UNKNOWN, *ESTIMATES}


@pytest.mark.parametrize("code", ANNOUNCED)
def test_a_reason_alone_is_announced_in_these_words(code: WaitCode) -> None:
    world = World()
    world.queue(1)
    wait = Wait(1, 1, 1, (WaitReason(code, words="words"),), blocked=True)
    found = next_event(world.fleet(), world.job(1), wait)
    assert (found.what, found.is_estimate) == (ANNOUNCED[code], code in ESTIMATES)
    assert found.machine is None
    if code in NOW:
        assert found.at is not None


def test_the_next_event_says_what_the_machine_waits_for() -> None:
    world = World()
    world.queue(1)
    world.launch(1)
    assert announced(world) == "a machine becomes ready"
    world.lists(listed("i-c0", reason="Unschedulable: 0/1 nodes are available"))
    words = "(it waits: Unschedulable: 0/1 nodes are available)"
    assert announced(world) == f"a machine becomes ready {words}"
    world.now += 600.0
    assert announced(world).startswith(f"a machine becomes ready later than the average {words}; ")
    world.boot("c0")
    world.do(e.MachineReportedStage, MachineId("c0"), "disk")
    assert announced(world).startswith("a machine becomes ready later than the average; ")


def announced(world: World) -> str:
    found = explained(world).next_event
    assert found is not None
    return found.what
