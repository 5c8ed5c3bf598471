"""The data of the console's pages: oldest jobs, starts, grids, costs, stages and texts."""

from typing import Any

import pytest

from autoscaler.model import events as e
from autoscaler.model.accounting import MachineUse
from autoscaler.model.changes import HistoryRow
from autoscaler.model.identifiers import MachineId
from autoscaler.model.jobs.job import JobState
from autoscaler.model.reasons.table import WaitCode
from autoscaler.model.reasons.waiting import WaitReason, in_short
from autoscaler.model.wait_objectives import (
    DEFAULT_OBJECTIVES,
    Starts,
    WaitObjective,
    objective_of,
    total,
)
from autoscaler.observability.alert_rules import AlertParameters
from autoscaler.views.cost import cost
from autoscaler.views.grid import MOST_COLUMNS, MOST_COMMITS, Commit, grid, repositories
from autoscaler.views.jobs.past import job_stages, machine_stages
from autoscaler.views.overview import oldest_jobs
from tests.ledger.builders import World
from tests.planner.fleets import catalogue, sku
from tests.server.asked_world import AskedWorld


def test_each_sku_has_its_oldest_job_with_what_happens_next() -> None:
    world = World(catalogue(sku(max_machines=1), sku("cpu")))
    world.queue(2)
    world.now += 10.0
    world.queue(1, 3)
    world.queue(4, labels=("cpu",))
    found = oldest_jobs(world.fleet(), world.plan().waiting)
    assert {name: one.job.id for name, one in found.items()} == {"gpu": 2, "cpu": 4}
    assert found["cpu"].next_event.what == "the controller sends a launch request"
    assert oldest_jobs(World().fleet(), {}) == {}


def test_a_job_that_github_has_to_confirm_is_the_oldest_too() -> None:
    world = World()
    world.observe(1, JobState.QUEUED, queued_at=world.now - 100_000.0)
    world.queue(2)
    assert world.job(1).disputed
    found = oldest_jobs(world.fleet(), world.plan().waiting)
    assert found["gpu"].job.id == 1


def test_the_objective_is_that_of_the_alerts() -> None:
    assert AlertParameters().objectives == DEFAULT_OBJECTIVES == (WaitObjective(),)
    assert Starts(1000, 1).meets_target
    assert not Starts(1000, 2).meets_target
    assert Starts().meets_target
    assert Starts().in_time is None
    assert total({"a": Starts(3, 1), "b": Starts(1, 0)}) == Starts(4, 1)


def test_starts_of_skus_with_different_targets_are_measured_against_their_mean() -> None:
    starts = {"a": Starts(100, 10, 0.9), "b": Starts(100, 0, 0.99), "c": Starts(0, 0, 0.5)}
    both = total(starts)
    assert (both.started, both.late, round(both.target, 9)) == (200, 10, 0.945)
    assert both.meets_target
    assert not total(starts | {"b": Starts(100, 2, 0.99)}).meets_target
    assert total({}) == Starts()


def test_a_sku_has_the_first_objective_that_matches_its_whole_name() -> None:
    gpu, rest = WaitObjective("gpu", "gpu.*", 600, 0.9), WaitObjective("rest", "[a-z]+")
    assert objective_of((gpu, rest), "gpu.a") == gpu
    assert objective_of((rest, gpu), "gpu") == rest
    assert objective_of((gpu, rest), "cpu") == rest
    assert objective_of((gpu, rest), "cpu.a") is None


def row(kind: str, event: str, at: float) -> HistoryRow:
    return HistoryRow(at, kind, "1", event)


def test_the_stages_of_a_job_begin_when_it_is_queued() -> None:
    rows = [
        row("machine", "requested", 2.0),
        row("machine", "launched", 4.0),
        row("machine", "booted", 64.0),
        row("machine", "ready", 74.0),
        row("runner", "named", 75.0),
        row("runner", "listening", 77.0),
        row("job", "in_progress", 80.0),
    ]
    stages = job_stages(rows, 0.0)
    assert [(one.name, one.seconds(100.0)) for one in stages] == [
        ("decide to launch", 2.0),
        ("launch", 2.0),
        ("boot", 60.0),
        ("health checks", 10.0),
        ("assign", 1.0),
        ("start the runner", 2.0),
        ("pick up", 3.0),
        ("run", 20.0),
    ]
    assert [one.end is None for one in stages] == [False] * 7 + [True]
    ended = job_stages([*rows, row("job", "completed", 95.0)], 0.0)
    assert ended[-1].end == 95.0
    # The machine was ready before the job was queued.
    assert [one.name for one in job_stages(rows, 74.5)] == [
        "assign",
        "start the runner",
        "pick up",
        "run",
    ]


def test_a_job_that_waits_is_in_its_first_stage() -> None:
    (stage,) = job_stages([row("job", "queued", 5.0)], 5.0)
    assert (stage.name, stage.end, stage.seconds(65.0)) == ("decide to launch", None, 60.0)


@pytest.mark.parametrize("end", ["terminated", "lost"])
def test_the_stages_of_a_machine_end_with_it(end: str) -> None:
    rows = [row("machine", "launched", 1.0), row("machine", "terminating", 9.0)]
    assert [one.name for one in machine_stages(rows, 0.0)] == ["launch", "power off", "terminate"]
    over = machine_stages([*rows, row("machine", end, 12.0)], 0.0)
    assert all(one.end is not None for one in over)


def test_the_grid_has_the_newest_attempt_of_each_job_by_commit() -> None:
    world = World()
    names: dict[str, Any] = {"workflow": "pull", "name": "test"}
    world.observe(1, JobState.QUEUED, run_id=7, **names)
    world.completes(1, conclusion="failure", run_id=7, **names)
    world.observe(2, JobState.QUEUED, run_id=7, run_attempt=2, **names)
    world.now += 60.0
    world.observe(3, JobState.QUEUED, run_id=8, workflow="lint")
    world.observe(4, JobState.QUEUED, repository="acme/other", run_id=9)
    found = grid("Acme/Widgets", world.state.jobs.values(), {7: Commit("abc", "main")})
    assert found.columns == (("lint", ""), ("pull", "test"))
    assert [(one.commit.sha, one.run_id) for one in found.rows] == [("", 8), ("abc", 7)]
    (nothing, cell) = found.rows[1].cells
    assert nothing is None
    assert cell is not None
    assert (cell.job, cell.result, cell.attempt) == (2, "queued", 2)
    views = repositories(world.state.jobs.values())
    assert [(one.repository, one.waiting, one.running, one.ended) for one in views] == [
        ("acme/widgets", 2, 0, 1),
        ("acme/other", 1, 0, 0),
    ]


def test_a_repository_counts_the_jobs_that_the_status_counts() -> None:
    world = World()
    world.queue(1)
    world.ready("c")
    world.starts(2, "runner")
    world.queue(3, labels=("ubuntu-latest",))
    world.queue(4, labels=("gpuu",))
    world.observe(5, JobState.WAITING)
    world.completes(6)
    world.completes(7, labels=("ubuntu-latest",))
    (seen,) = repositories(world.state.jobs.values())
    assert (seen.waiting, seen.running, seen.ended) == (1, 1, 1)
    shown = AskedWorld(world).status()
    assert (shown.waiting, shown.running) == (seen.waiting, seen.running)


def test_the_grid_is_bounded_and_says_what_is_missing() -> None:
    world = World()
    for job in range(1, MOST_COMMITS + MOST_COLUMNS):
        world.observe(job, JobState.QUEUED, run_id=job, name=f"job {job:03}")
    found = grid("acme/widgets", world.state.jobs.values(), {})
    assert (len(found.rows), found.more_rows) == (MOST_COMMITS, MOST_COLUMNS - 1)
    world = World()
    for job in range(1, MOST_COLUMNS + 3):
        world.observe(job, JobState.QUEUED, run_id=1, name=f"job {job:03}")
    found = grid("acme/widgets", world.state.jobs.values(), {})
    assert (len(found.columns), found.more_columns) == (MOST_COLUMNS, 2)
    assert len(found.rows[0].cells) == MOST_COLUMNS


def test_costs_are_by_sku_and_by_what_the_machines_do() -> None:
    world = World(catalogue(sku(), sku("cpu")))
    world.launch(1, "b")
    world.make_ready(2, "r")
    world.assignment("r0")
    world.launch(1, "x", "cpu")
    world.do(e.TerminationRequested, MachineId("x0"), "surplus", "no job")
    world.send(1, "unanswered")
    spent = {
        ("gpu", MachineUse.JOB): 2.0,
        ("gpu", MachineUse.BOOT): 0.5,
        ("cpu", MachineUse.JOB): 3.0,
    }
    found = cost(world.fleet(), 3.5, spent)
    assert [(one.sku, one.dollars) for one in found.spent] == [("cpu", 3.0), ("gpu", 2.5)]
    assert found.spent[1].by_use[MachineUse.BOOT] == 0.5
    assert found.dollars_per_hour == 3.5
    gpu, cpu = found.skus
    assert (gpu.sku, gpu.machines, gpu.spot_machines) == ("gpu", 3, 0)
    assert (gpu.working, gpu.ready, gpu.booting, gpu.ending) == (1.0, 1.0, 1.0, 0.0)
    assert (cpu.ending, cpu.dollars_per_hour) == (1.0, 1.0)


def test_reasons_with_the_same_words_are_one() -> None:
    def held(what: str, why: str) -> WaitReason:
        return WaitReason(WaitCode.CAPACITY, (what,), why)

    assert in_short([held("a", "none left"), held("b", "none left")]) == (
        "a and b are on hold: none left"
    )
    assert in_short([held("a", "none left"), held("b", "sold out")]) == (
        "a is on hold: none left; b is on hold: sold out"
    )
    limit = WaitReason(WaitCode.MAX_MACHINES, ("gpu",), count=1)
    assert in_short([limit, limit]) == limit.message == "max_machines of gpu (1) is reached"


def test_words_of_a_provider_that_look_like_ours_are_not_taken_apart() -> None:
    reasons = [
        WaitReason(WaitCode.CAPACITY, ("a",), "the zone is on hold: {maintenance}"),
        WaitReason(WaitCode.CAPACITY, ("b",), "the rack is on hold: {maintenance}"),
    ]
    assert in_short(reasons) == (
        "a is on hold: the zone is on hold: {maintenance}; "
        "b is on hold: the rack is on hold: {maintenance}"
    )
