"""Why a job waits, in situations with their real causes: what `autoscaler explain` announces comes true.

Each runs the whole controller in a simulated world, and asks it as the admin API does.
"""

from dataclasses import replace
from typing import Any

import pytest

from autoscaler.ledger.jobs.runs import OUTSIDE_ACCESS
from autoscaler.model.catalogue import Access, LaunchRate, Limits, Rate, RegistrationRate
from autoscaler.model.identifiers import JobId
from autoscaler.model.reasons.table import WaitCode
from autoscaler.simulator.world.ec2.machine import LISTENER_STARTS
from autoscaler.simulator.world.github.actions import HOOK_TAKES
from autoscaler.simulator.world.schedule import REPOSITORY, Fault, FaultKind, JobArrival
from autoscaler.simulator.world.virtual_time import EPOCH
from tests.chaos.fleet import WEST
from tests.views.situations import OPERATOR, PROMPTLY, Situation, job, one_sku, situation

AT_LAUNCH = (
    (FaultKind.NO_CAPACITY, WaitCode.CAPACITY, "InsufficientInstanceCapacity"),
    (FaultKind.THROTTLED, WaitCode.THROTTLED, "RequestLimitExceeded"),
    (FaultKind.OVERRIDE_REFUSED, WaitCode.CONFIGURATION, "InvalidFleetConfiguration"),
    (FaultKind.NO_QUOTA, WaitCode.QUOTA, "VcpuLimitExceeded"),
)


@pytest.mark.parametrize(("fault", "code", "words"), AT_LAUNCH)
def test_after_a_refused_launch_the_next_one_comes_when_the_hold_ends(
    fault: FaultKind, code: WaitCode, words: str
) -> None:
    @situation(job(), Fault(0.0, fault, 8.0, target=9))
    async def story(it: Situation) -> None:
        await it.at(7.0)
        event = it.announced(code)
        assert event.what == "the controller tries to launch a machine again"
        assert event.at is not None
        for one in it.explained().tried:
            assert one.on_hold.startswith(words)
            assert one.until == event.at
        await it.comes_true(event, lambda: len(it.launches) == 2)

    story()


@situation(job(1), job(2, at=300.0))
async def test_a_booting_machine_is_ready_about_when_the_average_says(it: Situation) -> None:
    await it.at(302.0)
    event = it.announced(WaitCode.MACHINE_BOOTING, 2)
    assert event.is_estimate
    await it.comes_true(event, lambda: it.registrations == 2)


@situation(job(), Fault(0.0, FaultKind.HUNG_BOOT, 60.0))
async def test_a_machine_that_boots_too_long_is_replaced_at_its_deadline(it: Situation) -> None:
    """Before, a machine was announced for the moment of each question, for a quarter of an hour."""
    await it.at(300.0)
    event = it.announced(WaitCode.MACHINE_BOOTING)
    assert "if not by then, the controller terminates it and tries another" in event.what
    assert not event.is_estimate
    await it.comes_true(event, lambda: len(it.launches) == 2)


@situation(job(1), job(2, at=140.0), Fault(0.0, FaultKind.FAILED_HEALTH_CHECKS, 125.0))
async def test_an_open_circuit_breaker_launches_a_probe_at_the_announced_time(
    it: Situation,
) -> None:
    await it.at(130.0)
    assert {one.failures for one in it.explained().tried} == {3}
    await it.comes_true(it.announced(WaitCode.HEALTH_CHECK), lambda: len(it.launches) == 4)
    # Meanwhile the second job waits for what becomes of the probe.
    event = it.announced(WaitCode.CIRCUIT_OPEN, 2)
    assert event.what == "the probe machine becomes ready, gets a job or fails"
    probe = it.world.machines.activities[3]
    while not probe.health_checks_passed:
        assert len(it.launches) == 4
        await it.at(it.world.fault_schedule.time + 0.5)
    await it.at(it.world.fault_schedule.time + PROMPTLY)
    assert len(it.launches) == 5


ONE_IN_50_SECONDS = {WEST: LaunchRate(Rate(1, 0.02))}


@situation(
    job(1),
    job(2, at=10.0),
    catalogue=replace(one_sku(), launch_rates=ONE_IN_50_SECONDS),
)
async def test_the_launch_rate_allows_the_next_launch_at_the_announced_time(it: Situation) -> None:
    await it.at(11.0)
    await it.comes_true(it.announced(WaitCode.LAUNCH_RATE, 2), lambda: len(it.launches) == 2)


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (FaultKind.REGISTRATION_REFUSED, WaitCode.REGISTRATION_ON_HOLD),
        (FaultKind.SECONDARY_LIMIT, WaitCode.GITHUB_SECONDARY_LIMIT),
    ],
)
def test_after_a_refused_registration_the_next_one_comes_at_the_announced_time(
    fault: FaultKind, code: WaitCode
) -> None:
    """GitHub refuses it for a missing permission, or for its secondary rate limit."""

    @situation(job(), Fault(40.0, fault, 20.0))
    async def story(it: Situation) -> None:
        await it.at(47.0)
        event = it.announced(code)
        assert event.what == code.entry.next_event
        await it.comes_true(event, lambda: it.registrations == 1)

    story()


@situation(
    job(1), job(2, at=6.0), catalogue=replace(one_sku(), registration=RegistrationRate(1, 0.01))
)
async def test_the_budget_of_registrations_allows_a_runner_at_the_announced_time(
    it: Situation,
) -> None:
    await it.at(46.0)
    # The registration of the first job is under way.
    now = it.announced(WaitCode.MACHINE_READY, 1)
    await it.comes_true(now, lambda: it.code(1) is not WaitCode.MACHINE_READY)
    await it.at(100.0)
    event = it.announced(WaitCode.MACHINE_READY, 2)
    assert event.is_estimate
    await it.comes_true(event, lambda: it.registrations == 2)


UNASSIGNED = Fault(0.0, FaultKind.HANDED_OUT_LATE, 60.0, target=600)


@situation(job(), UNASSIGNED)
async def test_github_assigns_the_job_before_the_machine_of_an_idle_runner_gives_up(
    it: Situation,
) -> None:
    """Before, nothing was announced before the controller's own check, a minute later.

    This GitHub assigns the job at the very moment at which the runner is about to leave.
    """
    await it.at(100.0)
    event = it.announced(WaitCode.RUNNER_IDLE)
    assert event.is_estimate
    assert "the machine has its registration deleted" in event.what
    assert event.at is not None
    await it.at(event.at - EPOCH)
    assert it.started(1) is None
    # The agent counts from the start of its listener, which takes some seconds after its acknowledgement.
    await it.at(event.at - EPOCH + LISTENER_STARTS + PROMPTLY)
    assert it.started(1) is not None


@situation(job(), UNASSIGNED, Fault(60.0, FaultKind.CUT_OFF, 300.0))
async def test_the_controller_asks_about_a_job_that_the_runner_of_a_silent_machine_did_not_get(
    it: Situation,
) -> None:
    await it.at(200.0)
    event = it.announced(WaitCode.RUNNER_IDLE)
    assert "if not by then, the controller asks GitHub about the job" in event.what
    await it.comes_true(event, lambda: it.code() is not WaitCode.RUNNER_IDLE)


@situation(
    replace(job(1), cancelled=90.0),
    job(2, at=120.0),
    replace(UNASSIGNED, lasts=130.0),
    Fault(60.0, FaultKind.CUT_OFF, 400.0),
)
async def test_a_job_that_came_later_is_asked_about_at_a_later_check(it: Situation) -> None:
    """Before, the announced time was up to a minute before the check."""
    await it.at(200.0)
    event = it.announced(WaitCode.RUNNER_IDLE, 2)
    await it.comes_true(event, lambda: it.code(2) is not WaitCode.RUNNER_IDLE)


@situation(job(), Fault(40.0, FaultKind.GITHUB_5XX, 240.0))
async def test_a_runner_that_github_did_not_register_yet_has_no_announced_time(
    it: Situation,
) -> None:
    """Before, GitHub was said to assign the job to it, at a moment that had passed."""
    await it.at(270.0)
    event = it.announced(WaitCode.RUNNER_IDLE)
    what = "GitHub answers the controller's request to register a runner"
    assert (event.what, event.at) == (what, None)
    assert it.registrations == 0


@situation(
    job(),
    UNASSIGNED,
    Fault(60.0, FaultKind.CUT_OFF, 300.0),
    Fault(220.0, FaultKind.GITHUB_5XX, 20.0),
)
async def test_an_unconfirmed_job_is_read_again_at_the_announced_time(it: Situation) -> None:
    await it.at(230.0)
    event = it.announced(WaitCode.JOB_UNCONFIRMED)
    await it.comes_true(event, lambda: it.code() is not WaitCode.JOB_UNCONFIRMED)


@situation(
    job(),
    replace(UNASSIGNED, target=880),
    Fault(40.0, FaultKind.IDLE_REMOVED, 300.0),
)
async def test_a_job_that_github_does_not_assign_gets_another_machine_at_the_announced_time(
    it: Situation,
) -> None:
    await it.at(300.0)
    event = it.announced(WaitCode.NOT_ASSIGNED)
    await it.comes_true(event, lambda: len(it.launches) == 3)


@situation(
    job(),
    Fault(0.0, FaultKind.GITHUB_5XX, 50.0),
    catalogue=one_sku(access=Access(forks=False)),
)
async def test_a_run_that_github_did_not_show_is_read_at_the_announced_time(it: Situation) -> None:
    await it.at(48.0)
    event = it.announced(WaitCode.RUN_UNKNOWN)
    await it.comes_true(event, lambda: it.code() is not WaitCode.RUN_UNKNOWN)
    assert it.launches


LIMITS = (
    ({"max_machines": 1}, WaitCode.MAX_MACHINES, "a machine of the SKU ends"),
    ({"limits": Limits(machines=1)}, WaitCode.FLEET_MACHINES, "a machine ends"),
    ({"limits": Limits(dollars_per_hour=0.1)}, WaitCode.FLEET_DOLLARS, "machines end"),
    ({"quota": 4}, WaitCode.QUOTA, "a machine under the quota ends"),
)


@pytest.mark.parametrize(("settings", "code", "what"), LIMITS)
def test_what_a_limit_keeps_waiting_is_launched_when_a_machine_ends(
    settings: dict[str, Any], code: WaitCode, what: str
) -> None:
    @situation(job(1), job(2, at=6.0), catalogue=one_sku(**settings))
    async def story(it: Situation) -> None:
        await it.at(60.0)
        event = it.announced(code, 2)
        assert event.what.startswith(what)
        assert event.at is None
        [first] = it.world.machines.running
        while first.ended_at is None:
            assert len(it.launches) == 1
            await it.at(it.world.fault_schedule.time + 1.0)
        # The next full listing shows the end.
        await it.at(first.ended_at - EPOCH + 60.0)
        assert len(it.launches) == 2

    story()


@situation(job(at=8.0))
async def test_a_paused_job_is_launched_when_an_operator_resumes(it: Situation) -> None:
    await it.at(6.0)
    process = it.world.supervisor.current()
    holds = it.controller.operator_holds
    await process.serve(holds.pause("arm", by=OPERATOR))
    await it.at(900.0)
    event = it.announced(WaitCode.PAUSED)
    assert (event.what, event.at) == ("an operator resumes what is paused", None)
    assert not it.launches
    await process.serve(holds.resume("arm", by=OPERATOR))
    await it.at(900.0 + PROMPTLY)
    assert len(it.launches) == 1


def of_others(number: int, at: float) -> JobArrival:
    """Return a job of a repository of its own, with labels that no runner for the first jobs has."""
    return job(number, at, labels=("arm", "ARM64"), repository=f"acme/other-{number}")


@situation(
    job(1, works=600.0, labels=("arm", "linux")),
    job(2, at=20.0, labels=("arm", "linux")),
    of_others(3, at=5.0),
    of_others(4, at=30.0),
    catalogue=one_sku(max_machines=2, fair_share=0.5),
)
async def test_above_its_fair_share_a_repository_waits_until_the_others_are_served(
    it: Situation,
) -> None:
    """Before, the end of any machine was announced, which then served the others."""
    await it.at(60.0)
    event = it.announced(WaitCode.MAX_MACHINES, 2)
    assert event.what == "a job of the repository ends, or the others have got their machines"
    while it.started(4) is None:
        assert it.announced(WaitCode.MAX_MACHINES, 2) == event
        await it.at(it.world.fault_schedule.time + 1.0)
    assert it.started(2) is None
    assert it.announced(WaitCode.MAX_MACHINES, 2) != event


@pytest.mark.case(
    "GitHub gives a job of a fork to a runner that another job left idle: the job hook refuses it, and the "
    "controller reports it",
    topic="GitHub's events",
    source="GitHub: runner groups; actions/runner ADR 1751",
)
@situation(
    replace(job(1), fork=True),
    job(2, at=6.0, works=300.0),
    catalogue=one_sku(access=Access(forks=False)),
)
async def test_the_job_of_a_fork_gets_a_runner_and_is_refused_on_its_machine(it: Situation) -> None:
    await it.at(400.0)
    forked, own = (it.world.actions.jobs[JobId(number)] for number in (1, 2))
    assert forked.conclusion == "failure"
    assert None not in (forked.started_at, forked.completed_at)
    assert forked.snapshots[-1][0] - forked.snapshots[-2][0] == HOOK_TAKES
    rows = [row for commit in it.world.store.commits for row in commit.history]
    assert [row.detail for row in rows if row.event == OUTSIDE_ACCESS] == [
        f"fork: job 1 of {REPOSITORY}"
    ]
    await it.at(1200.0)
    assert own.conclusion == "success"
