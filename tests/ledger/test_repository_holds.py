"""Repositories that a runner group does not admit: their jobs are on hold together, and no others."""

from dataclasses import replace
from typing import Any

import pytest

from autoscaler.ledger.job_holds import GROUP_VALID
from autoscaler.model import events as e
from autoscaler.model.catalogue import Access
from autoscaler.model.identifiers import RunnerName
from autoscaler.model.jobs.job import JobState, RunOrigin
from autoscaler.model.jobs.runner_group_excess import RunnerGroup
from autoscaler.model.machines.machine import ExitReason
from autoscaler.model.operators import HoldTarget, TargetKind
from autoscaler.model.plan import Launch
from autoscaler.model.reasons.table import WaitCode
from tests.ledger.builders import ALICE, GPU_CLASS, World
from tests.ledger.test_holds import held_jobs, leaves_idle, serves_the_repository
from tests.planner.fleets import catalogue, sku

INSIDE = RunOrigin(from_fork=False, public=False, branch="main")


def refuse(world: World, name: str) -> None:
    """A runner idles until it leaves, jobs of another repository start, and GitHub shows the rest as queued."""
    leaves_idle(world, name)
    serves_the_repository(world, 1000 + len(world.state.jobs), repository="acme/other")


def launches(world: World) -> int:
    return sum(launch.count for launch in world.intents(Launch))


@pytest.mark.case(
    "the jobs of one repository start, and its runner group does not admit another one: the other's jobs stay "
    "on hold together, one at a time is retried, and the reason names the group",
    topic="GitHub's events",
    source="GitHub: runner groups",
)
def test_jobs_of_a_repository_that_its_group_refuses_are_on_hold_together() -> None:
    world = World()
    world.queue(*range(1, 47))
    refuse(world, "a")
    refuse(world, "b")
    assert sorted(held_jobs(world)) == list(range(1, 47))
    assert launches(world) == 0
    world.queue(47)
    assert 47 in held_jobs(world), "a later job of the repository has no better chance"
    assert launches(world) == 0
    world.observe(48, JobState.QUEUED, repository="acme/other")
    assert launches(world) == 1


def test_one_job_of_a_repository_on_hold_is_retried_at_a_time() -> None:
    world = World()
    world.queue(*range(1, 47))
    refuse(world, "a")
    refuse(world, "b")
    probes = 0
    for hours in range(6):
        for _ in range(60):
            world.after(60)
            if planned := launches(world):
                assert planned == 1
                probes += 1
                refuse(world, f"p{probes}")
        assert probes <= 3 + hours, "probes after 10, 20 and 40 minutes, then every hour"
    assert probes >= 5
    serves_the_repository(world)
    assert held_jobs(world) == []


def test_the_next_job_is_retried_if_the_one_that_was_retried_is_cancelled() -> None:
    world = World()
    world.queue(1, 2, 3)
    refuse(world, "a")
    refuse(world, "b")
    world.after(601)
    assert sorted(held_jobs(world)) == [2, 3]
    world.after(60)
    assert sorted(held_jobs(world)) == [2, 3]
    world.completes(1)
    world.after(60)
    assert held_jobs(world) == [3]


@pytest.mark.parametrize(
    "fields",
    [
        {"repository": "acme/other"},
        {"labels": ("extra",)},
        {"runner_name": RunnerName("of-another-fleet")},
        {"runner_name": None},
        {"runner_id": 8},
    ],
)
def test_a_start_that_proves_nothing_for_the_repository_ends_no_hold(fields: Any) -> None:
    world = World(catalogue(sku(labels=("extra",))))
    world.queue(1)
    leaves_idle(world, "a")
    leaves_idle(world, "b")
    world.observe(2, JobState.IN_PROGRESS, **{"runner_name": world.ready("c")} | fields)
    assert held_jobs(world) == [1]
    assert launches(world) == 0


def test_the_end_of_a_job_whose_start_github_did_not_report_ends_the_hold() -> None:
    world = World()
    world.queue(1)
    leaves_idle(world, "a")
    leaves_idle(world, "b")
    world.completes(2, runner_name=world.ready("c"))
    assert held_jobs(world) == []


def test_a_restart_keeps_the_hold_of_a_repository_and_what_github_admits() -> None:
    world = World()
    world.queue(1, 2)
    refuse(world, "a")
    refuse(world, "b")
    world.restart(10.0)
    world.queue(3)
    assert sorted(held_jobs(world)) == [1, 2, 3]
    serves_the_repository(world)
    assert held_jobs(world) == []
    world.restart(10.0)
    assert ("org:acme", "Default", "acme/widgets") in world.state.served_repositories


def test_a_job_whose_run_is_read_later_joins_the_hold_of_its_repository() -> None:
    restricted = replace(sku(), access=Access(("acme/*",), forks=False))
    world = World(catalogue(restricted))
    for job in (1, 2):
        world.observe(job, JobState.QUEUED, run_id=job)
        world.do(e.RunRead, job, INSIDE)
    refuse(world, "a")
    refuse(world, "b")
    world.observe(3, JobState.QUEUED, run_id=3)
    world.do(e.RunRead, 3, INSIDE)
    assert sorted(held_jobs(world)) == [1, 2, 3]


def reads(world: World, group: RunnerGroup) -> None:
    world.do(e.RunnerGroupRead, "org:acme", "Default", group)


@pytest.mark.parametrize(
    "group",
    [
        RunnerGroup("selected", False, False, ("acme/other",)),
        RunnerGroup("selected", True, False, ()),
    ],
)
def test_no_machine_is_launched_for_a_repository_that_the_group_does_not_admit(
    group: RunnerGroup,
) -> None:
    world = World()
    world.queue(1)
    reads(world, group)
    world.queue(2)
    assert sorted(held_jobs(world)) == [1, 2]
    assert launches(world) == 0
    (why,) = world.plan().waiting[GPU_CLASS]
    assert (why.code, why.count, why.blocked) == (WaitCode.NOT_ASSIGNED, 2, True)
    assert "runner group 'Default' of acme does not admit acme/widgets: see Settings" in why.message
    for _ in range(600):
        reads(world, group)
        world.after(60)
    assert launches(world) == 0
    reads(world, replace(group, repositories=("acme/other", "ACME/Widgets")))
    assert held_jobs(world) == []
    assert launches(world) == 2


def test_a_group_without_public_repositories_refuses_those_that_are_public() -> None:
    world = World(catalogue(replace(sku(), access=Access(("acme/*",), forks=False))))
    group = RunnerGroup("all", allows_public_repositories=False, restricted_to_workflows=False)
    reads(world, group)
    for job, public in ((1, True), (2, False)):
        world.observe(job, JobState.QUEUED, run_id=job, repository=f"acme/r{job}")
        world.do(e.RunRead, job, replace(INSIDE, public=public))
    assert held_jobs(world) == [1]
    assert launches(world) == 1
    reads(world, replace(group, allows_public_repositories=True))
    assert held_jobs(world) == []


CHANGES = (
    {"allows_public_repositories": True},
    {"restricted_to_workflows": False},
    {"workflows": ("acme/widgets/.github/workflows/ci.yml@main",)},
    {"visibility": "selected", "repositories": ("acme/widgets",)},
)


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_group_ends_the_holds_of_the_repositories_that_it_does_not_refuse(
    change: Any,
) -> None:
    world = World()
    group = RunnerGroup("all", allows_public_repositories=False, restricted_to_workflows=True)
    reads(world, group)
    world.queue(1, 2)
    refuse(world, "a")
    refuse(world, "b")
    reads(world, group)
    assert sorted(held_jobs(world)) == [1, 2], "the same answer proves nothing"
    reads(world, replace(group, **change))
    assert held_jobs(world) == []
    assert launches(world) == 2


def test_a_reading_of_another_group_or_scope_changes_nothing() -> None:
    world = World()
    world.queue(1)
    for scope, group in (("org:acme", "other"), ("org:other", "Default")):
        none = RunnerGroup("selected", False, False, ())
        world.do(e.RunnerGroupRead, scope, group, none)
        world.do(e.RunnerGroupRead, scope, group, replace(none, repositories=("a/b",)))
    assert launches(world) == 1


def test_a_repository_that_its_group_stops_admitting_is_on_hold_although_it_was_served() -> None:
    world = World()
    reads(world, RunnerGroup("selected", False, False, ("acme/widgets",)))
    serves_the_repository(world)
    world.queue(1)
    reads(world, RunnerGroup("selected", False, False, ()))
    assert held_jobs(world) == [1]
    serves_the_repository(world, 98)
    assert held_jobs(world) == [], "GitHub has given it a job since then"


def test_a_group_that_cannot_be_read_for_long_holds_nothing() -> None:
    world = World()
    reads(world, RunnerGroup("selected", False, False, ()))
    world.queue(1)
    world.after(GROUP_VALID - 1)
    assert launches(world) == 0
    world.after(1)
    world.queue(2)
    assert launches(world) == 2


def test_a_restart_keeps_the_hold_until_the_group_is_read_again() -> None:
    world = World()
    reads(world, RunnerGroup("selected", False, False, ()))
    world.queue(1)
    world.restart(10.0)
    assert (held_jobs(world), launches(world)) == ([1], 0)
    reads(world, RunnerGroup("all", True, False))
    assert held_jobs(world) == []


def test_a_false_report_of_an_exit_holds_back_no_job_of_another_repository() -> None:
    """A job with root reports the exit of its machine before GitHub's report of the job arrives."""
    world = World()
    world.queue(1)
    for number, name in enumerate("abcd"):
        runner = leaves_idle(world, name)
        world.observe(100 + number, JobState.IN_PROGRESS, repository="acme/bad", runner_name=runner)
        assert world.job(1).passed_over == ()
    assert held_jobs(world) == []


def test_a_runner_that_was_idle_for_long_keeps_its_mark_when_it_gets_another_job() -> None:
    world = World()
    world.queue(1)
    runner = world.ready("a")
    world.after(180)
    world.observe(2, JobState.IN_PROGRESS, repository="acme/other", runner_name=runner)
    assert world.job(1).passed_over == (runner,)


def test_a_repository_stays_on_hold_after_its_jobs_on_hold_were_cancelled() -> None:
    world = World()
    world.queue(*range(1, 11))
    refuse(world, "a")
    refuse(world, "b")
    for job in range(1, 11):
        world.completes(job)
    planned = 0
    for job in range(11, 311):
        world.queue(job)
        world.after(60)
        if launches(world):
            planned += 1
            refuse(world, f"p{job}")
        for held in tuple(held_jobs(world)):
            world.completes(held)
    assert 0 < planned <= 8, "probes after 10, 20 and 40 minutes, then every hour, in five hours"


def three_skus() -> World:
    return World(catalogue(sku(), sku("cpu"), sku("tpu", labels=("extra",))))


@pytest.mark.parametrize("labels", [("cpu",), ("tpu",), ("tpu", "extra")])
def test_other_labels_do_not_escape_the_hold_of_a_repository(labels: tuple[str, ...]) -> None:
    world = three_skus()
    world.queue(1)
    world.queue(2, labels=labels)
    refuse(world, "a")
    refuse(world, "b")
    world.queue(3, labels=labels)
    assert sorted(held_jobs(world)) == [1, 2, 3]
    world.observe(4, JobState.QUEUED, labels, repository="acme/other")
    assert launches(world) == 1
    world.after(600)
    assert len(held_jobs(world)) == 2, "one at a time is retried, whatever its labels"


def test_runners_of_all_labels_count_for_the_hold_of_a_repository() -> None:
    world = three_skus()
    world.queue(1, labels=("tpu",))
    leaves_idle(world, "a", "tpu")
    world.completes(1, labels=("tpu",))
    world.queue(2)
    refuse(world, "b")
    world.queue(3, labels=("cpu",))
    assert sorted(held_jobs(world)) == [2, 3]
    assert launches(world) == 0


def test_a_job_with_other_labels_that_starts_ends_the_hold_of_the_repository() -> None:
    world = three_skus()
    world.queue(1)
    world.queue(2, labels=("cpu",))
    leaves_idle(world, "a")
    leaves_idle(world, "b")
    assert sorted(held_jobs(world)) == [1, 2]
    runner = world.ready("c", "tpu")
    world.starts(3, runner, labels=("tpu",))
    assert held_jobs(world) == [1], "its own labels were passed over: that has another reason"
    world.queue(4, 5)
    world.queue(6, labels=("cpu",))
    assert held_jobs(world) == [1]


def test_a_restart_keeps_the_hold_of_a_repository_of_which_no_job_waits() -> None:
    world = World()
    world.queue(1)
    leaves_idle(world, "a")
    leaves_idle(world, "b")
    world.completes(1)
    world.restart(10.0)
    world.queue(2)
    assert held_jobs(world) == [2]


def test_an_operator_retries_a_repository_of_which_no_job_waits() -> None:
    world = World()
    world.queue(1)
    leaves_idle(world, "a")
    leaves_idle(world, "b")
    world.completes(1)
    world.do(e.RetriedByOperator, HoldTarget(TargetKind.FLEET, ""), ALICE)
    world.queue(2)
    world.after(1)
    assert held_jobs(world) == []


def test_a_changed_group_ends_the_hold_of_a_repository_of_which_no_job_waits() -> None:
    world = World()
    group = RunnerGroup("all", allows_public_repositories=True, restricted_to_workflows=True)
    reads(world, group)
    world.queue(1)
    leaves_idle(world, "a")
    leaves_idle(world, "b")
    world.completes(1)
    reads(world, replace(group, restricted_to_workflows=False))
    world.queue(2)
    assert held_jobs(world) == []


def test_a_runner_that_could_not_connect_counts_for_no_repository() -> None:
    world = World()
    world.queue(1)
    leaves_idle(world, "a")
    runner = world.ready("b")
    world.now += 120
    machine = world.runner(runner).machine
    world.do(e.MachineExited, machine, "no job came", ExitReason.NOT_CONNECTED)
    world.completes(1)
    world.queue(2)
    assert held_jobs(world) == []
