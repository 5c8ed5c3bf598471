"""For each situation in which a job waits: the announced event comes true at the announced time."""

import dataclasses
from collections.abc import Callable

import pytest

from autoscaler.model import events as e
from autoscaler.model.catalogue import Access, Limits, RegistrationRate
from autoscaler.model.failures import FailureClass
from autoscaler.model.identifiers import JobId
from autoscaler.model.jobs import Admission, JobState
from autoscaler.model.operator_holds import (
    WHOLE_FLEET,
    HoldKind,
    HoldTarget,
    provider_target,
    sku_target,
)
from autoscaler.model.plan import Assign, Launch, ReadJob, ReadRun
from autoscaler.model.run_origins import RunOrigin
from autoscaler.model.waiting import WaitCode, WaitReason
from autoscaler.views.explanation import Explanation, explain_job
from autoscaler.views.next_event import next_event
from autoscaler.views.waits import Wait
from tests.ledger.builders import ALICE, GPU, World, failure
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


def test_a_booting_machine_is_ready_after_the_average_boot() -> None:
    world = World()
    world.queue(1)
    world.launch(1)
    world.after(30.0)
    world.state.boot_seconds[GPU] = 95.0
    found = explained(world)
    assert found.next_event is not None
    assert (found.next_event.machine, found.next_event.is_estimate) == ("c0", True)
    assert found.next_event.at == world.machine("c0").created_at + 95.0


def test_each_job_in_line_is_announced_a_booting_machine_of_its_own() -> None:
    world = World()
    world.queue(1, 2)
    world.launch(1, "a")
    world.after(10.0)
    world.launch(1, "b")
    machines = [explained(world, job).next_event for job in (1, 2)]
    assert [one.machine for one in machines if one is not None] == ["a0", "b0"]


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (FailureClass.CAPACITY, WaitCode.CAPACITY),
        (FailureClass.CONFIGURATION, WaitCode.CONFIGURATION),
        (FailureClass.QUOTA, WaitCode.QUOTA),
        (FailureClass.THROTTLED, WaitCode.THROTTLED),
        (FailureClass.UNKNOWN, WaitCode.UNKNOWN),
    ],
)
def test_after_a_refused_launch_the_next_launch_comes_when_the_hold_ends(
    kind: FailureClass, code: WaitCode
) -> None:
    world = World()
    world.queue(1)
    world.send(1)
    world.answer("c", failures=[failure(kind)])
    at = expect(world, code)
    assert at > world.now
    tried = explained(world).tried
    assert {(one.held, one.until) for one in tried} == {("Code: words", at)}
    comes_true(world, at, lambda: launches(world))


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
        assert one.held.startswith(words)
        assert (one.until, one.failures) == (None, 1)
    world.do(e.ResumedByOperator, target, ALICE)
    assert {one.held for one in explained(world).tried} == {"Code: words"}


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


def test_the_registration_rate_allows_the_next_runner_at_the_announced_time() -> None:
    world = World(catalogue(registration=RegistrationRate(1, 0.01)))
    world.make_ready(2)
    world.queue(1, 2)
    (first,) = world.intents(Assign)
    world.assignment(first.machine)
    world.starts(1, world.machine(first.machine).work.runner or "")
    at = expect(world, WaitCode.MACHINE_READY, job=2)
    assert at == pytest.approx(world.now + 100.0)
    comes_true(world, at, lambda: bool(world.intents(Assign)))


def test_a_scope_on_hold_registers_again_at_the_announced_time() -> None:
    world = World()
    world.make_ready(1)
    world.queue(1)
    (one,) = world.intents(Assign)
    name = world.name(one.machine)
    world.do(e.RunnerRegistrationFailed, name, FailureClass.CONFIGURATION, "403 no", world.now + 60)
    at = expect(world, WaitCode.REGISTRATION_ON_HOLD)
    assert at == world.now + 60
    comes_true(world, at, lambda: bool(world.intents(Assign)))


def test_an_unconfirmed_job_is_read_at_the_announced_time() -> None:
    world = World()
    world.queue(1)
    world.observe(1, JobState.WAITING)
    world.queue(1)
    world.state.reads[JobId(1)] = world.now + 60.0
    comes_true(world, expect(world, WaitCode.JOB_UNCONFIRMED), lambda: bool(world.intents(ReadJob)))


def test_a_job_that_github_does_not_assign_is_tried_again_at_the_announced_time() -> None:
    world = World()
    world.queue(1)
    for name in "ab":
        runner = world.ready(name)
        world.now += 120
        world.do(e.MachineExited, f"{name}0", f"{runner} left")
        world.observe(1, JobState.QUEUED, read=True)
    at = expect(world, WaitCode.NOT_ASSIGNED)
    comes_true(world, at, lambda: bool(world.intents(ReadJob)) or launches(world))


def test_an_unknown_run_is_read_at_the_announced_time() -> None:
    world = World(catalogue(CLOSED))
    world.observe(1, JobState.QUEUED, run_id=7)
    assert expect(world, WaitCode.RUN_UNKNOWN) == world.now
    assert world.intents(ReadRun)


def test_github_fails_a_refused_job_after_a_day() -> None:
    world = World(catalogue(CLOSED))
    world.observe(1, JobState.QUEUED, run_id=7)
    world.do(e.RunRead, 7, FORK)
    at = expect(world, WaitCode(Admission.FORK.value))
    comes_true(world, at, lambda: world.state.jobs[JobId(1)].state is JobState.COMPLETED)


def test_an_idle_runner_is_passed_over_at_the_announced_time() -> None:
    world = World()
    world.ready()
    world.queue(1)
    at = expect(world, WaitCode.RUNNER_IDLE)
    found = explained(world).next_event
    assert found is not None
    assert found.machine == "c0"
    comes_true(world, at, lambda: world.job(1).disputed)


@pytest.mark.parametrize(
    ("limits", "code", "words"),
    [
        (Limits(machines=0), WaitCode.FLEET_MACHINES, "limits.machines"),
        (Limits(dollars_per_hour=0.1), WaitCode.FLEET_DOLLARS, "limits.dollars_per_hour"),
        (Limits(quotas={"east/G": 0}), WaitCode.QUOTA, "quota"),
    ],
)
def test_a_limit_has_no_announced_time_and_says_what_ends_the_wait(
    limits: Limits, code: WaitCode, words: str
) -> None:
    world = World(catalogue(limits=limits))
    world.queue(1)
    found = explained(world)
    assert found.job is not None
    assert found.job.wait is not None
    assert found.next_event is not None
    assert (found.job.wait.code, found.next_event.at) == (code, None)
    assert words in found.next_event.what


def test_every_code_has_a_next_event() -> None:
    world = World()
    world.queue(1)
    for code in WaitCode:
        reasons = (WaitReason(code, "words"),)
        found = next_event(world.fleet(), world.job(1), Wait(1, 1, 1, reasons, blocked=True))
        assert found.what, code
        if code in WITHOUT_TIME:
            assert "an operator has to act" not in found.what, code


def test_a_paused_job_waits_for_an_operator_and_is_launched_when_one_resumes() -> None:
    world = World()
    world.queue(1)
    world.do(e.HeldByOperator, HoldKind.PAUSED, sku_target(GPU), ALICE)
    found = explained(world)
    assert found.job is not None
    assert found.job.wait is not None
    assert found.job.wait.code is WaitCode.PAUSED
    assert "autoscaler resume sku/gpu ends this" in found.job.wait.reasons[0].message
    assert found.next_event is not None
    assert (found.next_event.what, found.next_event.at) == (
        "an operator resumes what is paused",
        None,
    )
    world.after(3_600.0)
    assert not launches(world)
    world.do(e.ResumedByOperator, sku_target(GPU), ALICE)
    assert launches(world)
