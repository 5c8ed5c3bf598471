"""Lists of jobs and machines as operators see them, and a job's place in line."""

import dataclasses

import pytest

from autoscaler.controller.reporting.fleet_counts import fleet_counts
from autoscaler.model import events as e
from autoscaler.model.catalogue import Access, Limits
from autoscaler.model.identifiers import JobId, MachineId, SkuName
from autoscaler.model.jobs.job import JobState
from autoscaler.model.machines.machine import MachineState
from autoscaler.model.operators import WHOLE_FLEET, HoldKind
from autoscaler.model.reasons.faults import Fault
from autoscaler.model.reasons.table import FaultCode, Unmatched, WaitCode
from autoscaler.model.reasons.waiting import Reason
from autoscaler.model.wait_objectives import DEFAULT_OBJECTIVES, Starts
from autoscaler.views.faults.counts import Counts
from autoscaler.views.jobs.explanation import explain_job, explain_labels
from autoscaler.views.jobs.lists import JobFilter, running_jobs, unmatched_jobs, waiting_jobs
from autoscaler.views.jobs.waits import Wait, wait_of
from autoscaler.views.listed import Part
from autoscaler.views.machines import MachineFilter, machines, named
from autoscaler.views.status import status
from tests.ledger.builders import ALICE, GPU, World
from tests.ledger.test_holds import leaves_idle
from tests.planner.fleets import catalogue, sku

NO_SKU = "no SKU has all of the labels gpuu"
LONG_WAIT = FaultCode.JOB_WAITS_FOR_HOURS.entry.threshold.above
READY = MachineFilter(GPU, MachineState.READY)
NONE = Counts(running={}, dollars_per_hour=0.0)


def queue_of(world: World, limit: int = 10, only: SkuName | None = None) -> list[tuple[int, str]]:
    found = waiting_jobs(world.fleet(), world.plan().waiting, JobFilter(only), Part(0, limit)).rows
    return [(job.id, job.wait.code.value if job.wait else "") for job in found]


def test_jobs_are_listed_oldest_first_across_classes() -> None:
    world = World(catalogue(sku(), sku("cpu")))
    for job, label in ((1, "gpu"), (2, "cpu"), (3, "gpu")):
        world.queue(job, labels=(label,))
        world.now += 1
    assert [job for job, _ in queue_of(world)] == [1, 2, 3]
    assert [job for job, _ in queue_of(world, limit=2)] == [1, 2]
    assert [job for job, _ in queue_of(world, only=SkuName("cpu"))] == [2]


def test_jobs_about_which_github_decides_are_listed_with_the_others() -> None:
    world = World(catalogue(dataclasses.replace(sku(), access=Access(forks=False))))
    world.observe(1, JobState.QUEUED, run_id=7)
    world.now += 1
    world.observe(2, JobState.WAITING, run_id=8)
    assert queue_of(world) == [(1, "run_unknown")]
    other = World()
    other.queue(1, 2)
    other.observe(1, JobState.WAITING)
    other.queue(1)
    assert queue_of(other) == [(1, "job_unconfirmed"), (2, "launch_planned")]


def test_the_place_in_line_counts_the_jobs_with_the_same_labels() -> None:
    world = World(catalogue(limits=Limits(machines=1)))
    for job in (1, 2, 3):
        world.queue(job)
        world.now += 1
    fleet, reasons = world.fleet(), world.plan().waiting
    waits = [wait_of(fleet, reasons, world.job(job)) for job in (1, 2, 3)]
    assert [(w.place, w.line, w.turn, w.code.value, w.blocked) for w in waits if w] == [
        (1, 3, 1, "launch_planned", False),
        (2, 3, 1, "fleet_machines", True),
        (3, 3, 2, "fleet_machines", True),
    ]


def test_a_job_that_github_does_not_assign_is_explained_with_its_own_repository_and_group() -> None:
    world = World()
    for job, repository in ((1, "acme/a"), (2, "acme/b")):
        world.observe(job, JobState.QUEUED, repository=repository)
    for name in "abcd":
        leaves_idle(world, name)
    reasons = world.plan().waiting
    for job, repository in ((1, "acme/a"), (2, "acme/b")):
        wait = wait_of(world.fleet(), reasons, world.job(job))
        assert wait is not None
        assert (wait.code, wait.blocked) == (WaitCode.NOT_ASSIGNED, True)
        assert f"jobs of {repository} to none" in wait.reasons[0].message
        assert "runner group 'Default' of acme" in wait.reasons[0].message


def test_a_job_that_the_plan_does_not_know_is_not_planned_yet() -> None:
    world = World()
    world.queue(1)
    reasons = world.plan().waiting
    world.now += 1
    world.queue(2)
    waits = wait_of(world.fleet(), reasons, world.job(2))
    assert waits is not None
    assert (waits.code, waits.place, waits.blocked) == (WaitCode.NOT_PLANNED, 2, False)


def test_a_running_job_waits_for_nothing_and_shows_its_machine() -> None:
    world = World()
    runner = world.ready()
    world.queue(1)
    world.starts(1, runner)
    assert queue_of(world) == []
    (job,) = running_jobs(world.fleet(), {}, JobFilter(), Part(0, 10)).rows
    assert (job.id, job.machine, job.runner, job.wait) == (1, "c0", runner, None)
    assert running_jobs(world.fleet(), {}, JobFilter(SkuName("other")), Part(0, 10)).rows == []


def test_machines_are_listed_in_the_order_of_their_life() -> None:
    world = World(catalogue(sku(), sku("cpu")))
    world.make_ready(1, "r")
    world.launch(1, "l")
    world.launch(1, "o", sku="cpu")
    rows = machines(world.fleet(), MachineFilter(), Part(0, 10)).rows
    assert [(m.sku, m.id, m.state) for m in rows] == [
        ("cpu", "o0", "launched"),
        ("gpu", "l0", "launched"),
        ("gpu", "r0", "ready"),
    ]
    assert [m.id for m in machines(world.fleet(), READY, Part(0, 10)).rows] == ["r0"]
    assert [m.id for m in machines(world.fleet(), MachineFilter(), Part(0, 1)).rows] == ["o0"]


def test_a_machine_is_found_by_its_id_its_provider_s_id_and_its_runner_s_name() -> None:
    world = World()
    runner = world.ready()
    for name in ("c0", "i-c0", runner):
        found = named(world.fleet(), name)
        assert found is not None
        assert found.id == MachineId("c0")
    assert named(world.fleet(), "i-other") is None


def test_labels_of_no_sku_name_the_nearest_one() -> None:
    world = World()
    found = explain_labels(world.fleet(), "acme/widgets", ["gpuu"])
    assert found.skus == ()
    assert found.unmatched == (
        "no SKU has all of the labels gpuu; the label gpuu is close to gpu, which exists; "
        "the nearest SKU is gpu"
    )
    several = explain_labels(world.fleet(), "acme/widgets", ["gpuu", "large"])
    assert several.unmatched.startswith("no SKU has all of the labels gpuu, large")
    default = explain_labels(world.fleet(), "acme/widgets", ["self-hosted", "linux", "x64"])
    assert default.unmatched == (
        "the labels self-hosted, linux, x64 name no SKU; add one, or set unlabelled: true for one"
    )
    assert "no scope" in explain_labels(world.fleet(), "other/repo", ["gpu"]).unmatched
    assert "GitHub's own" in explain_labels(world.fleet(), "acme/w", ["ubuntu-latest"]).unmatched
    served = explain_labels(world.fleet(), "acme/widgets", ["gpu"])
    assert (served.skus, served.unmatched) == (("gpu",), "")
    assert [one.offering for one in served.tried] == list(world.keys())


def test_labels_of_any_repository_need_neither_a_scope_nor_access() -> None:
    closed = dataclasses.replace(
        sku("gpu"), access=Access(repositories=("acme/other",), forks=True)
    )
    world = World(catalogue(closed))
    assert explain_labels(world.fleet(), "acme/widgets", ["gpu"]).skus == ()
    found = explain_labels(world.fleet(), None, ["GPU"])
    assert (found.skus, found.unmatched, found.repository) == (("gpu",), "", "")
    assert "the nearest SKU is gpu" in explain_labels(world.fleet(), None, ["gpuu"]).unmatched
    assert "GitHub's own" in explain_labels(world.fleet(), None, ["ubuntu-latest"]).unmatched


def test_queued_jobs_that_no_sku_serves_are_listed_with_the_reason_oldest_first() -> None:
    closed = dataclasses.replace(
        sku("gpu"), access=Access(repositories=("acme/other",), forks=True)
    )
    world = World(catalogue(closed, sku("cpu")))
    world.queue(4, labels=("gpu",))
    world.now -= 1
    world.queue(5, labels=("gpuu",))
    world.queue(6, labels=("ubuntu-latest",))
    world.queue(7, labels=("cpu",))
    assert status(world.fleet(), {}, NONE).unmatched == {"labels": 1, "access": 1}
    found = unmatched_jobs(world.fleet(), JobFilter(), Part(0, 9)).rows
    assert [(one.id, one.wait.code) for one in found if one.wait is not None] == [
        (5, Unmatched.LABELS),
        (4, Unmatched.ACCESS),
    ]
    assert [one.id for one in unmatched_jobs(world.fleet(), JobFilter(), Part(0, 1)).rows] == [5]
    world.observe(5, JobState.IN_PROGRESS, labels=("gpuu",))
    world.completes(4, labels=("gpu",))
    assert unmatched_jobs(world.fleet(), JobFilter(), Part(0, 9)).rows == []


def test_a_job_that_ran_elsewhere_before_its_sku_was_there_says_so() -> None:
    world = World()
    world.queue(1, labels=("cpu",))
    world.completes(1, labels=("cpu",), conclusion="success")
    world.ledger.change_catalogue(catalogue(sku(), sku("cpu")))
    found = explain_job(world.fleet(), {}, world.job(1))
    assert found.unmatched == "no SKU served these labels while the job was queued"


def test_a_job_that_no_sku_serves_says_so() -> None:
    world = World()
    world.queue(1, labels=("gpuu",))
    found = explain_job(world.fleet(), world.plan().waiting, world.job(1))
    assert "nearest SKU is gpu" in found.unmatched
    assert found.next_event is None
    assert found.job is not None
    reason = Reason(
        Unmatched.LABELS, ("gpuu",), found.unmatched.removeprefix(NO_SKU), variant="named"
    )
    assert found.job.wait == Wait(0, 0, 0, (reason,), blocked=True)
    assert reason.message == found.unmatched


@pytest.mark.parametrize(
    ("state", "labels"),
    [(JobState.QUEUED, ("ubuntu-latest",)), (JobState.IN_PROGRESS, ("gpuu",))],
)
def test_a_job_that_others_serve_does_not_wait_for_this_fleet(
    state: JobState, labels: tuple[str, ...]
) -> None:
    world = World()
    world.observe(1, state, labels=labels)
    found = explain_job(world.fleet(), world.plan().waiting, world.job(1))
    assert found.job is not None
    assert (bool(found.unmatched), found.job.wait) == (True, None)


def test_the_status_names_the_sku_and_the_reason_of_blocked_jobs() -> None:
    world = World(catalogue(sku(max_machines=1), sku("cpu")))
    world.queue(1, 2, 3)
    world.queue(4, labels=("cpu",))
    seen = status(world.fleet(), world.plan().waiting, NONE)
    assert (seen.waiting, seen.blocked) == (4, 2)
    assert [(one.code, one.about, one.message) for one in seen.faults] == [
        ("max_machines", "gpu", "2 jobs wait: max_machines of gpu (1) is reached")
    ]
    cpu = next(one for one in seen.skus if one.sku == "cpu")
    assert (cpu.waiting, cpu.blocked, cpu.reasons[0].code) == (1, 0, WaitCode.LAUNCH_PLANNED)


def test_long_waits_and_late_starts_are_troubles_of_skus_without_others() -> None:
    world = World(catalogue(sku(max_machines=1), sku("cpu"), sku("arm")))
    world.queue(1, 2)
    world.queue(3, labels=("cpu",))
    world.now += LONG_WAIT + 60.0
    late = Starts(started=10, late=1)
    counts = Counts(
        running={},
        dollars_per_hour=0.0,
        last_hour={"gpu": late, "cpu": late, "arm": late, "fine": Starts(started=10)},
        objectives=DEFAULT_OBJECTIVES,
    )
    seen = status(world.fleet(), world.plan().waiting, counts)
    assert [(one.code, one.about, one.message) for one in seen.faults] == [
        ("max_machines", "gpu", "1 job waits: max_machines of gpu (1) is reached"),
        (
            "job_waits_for_hours",
            "",
            "a job has waited for 2h01m: a machine for the job is about to be requested",
        ),
        ("jobs_start_late", "", "1 job of 10 waited for longer than 5 minutes in the last hour"),
    ]
    assert [(one.skus, one.effects) for one in seen.faults] == [
        (("gpu",), ("job_waits_for_hours", "jobs_start_late")),
        (("cpu",), ("jobs_start_late",)),
        (("arm",), ()),
    ]


def test_the_status_names_the_nodes_that_a_sku_avoids() -> None:
    world = World()
    for number in range(5):
        (machine,) = world.launch(1, f"c{number}-")
        world.do(e.MachineAttested, machine, "nonce", f"node-{number}")
        world.now += 1.0
        said = "gpu_query: no answer" if number else "gpu_errors: " + "x" * 300
        world.do(e.HealthChecksReported, machine, False, said)
    seen = status(world.fleet(), world.plan().waiting, Counts({}, 0.0))
    [found] = [one for one in seen.faults if one.code == "node_avoided"]
    assert found.about == GPU
    assert found.message.startswith("5 nodes of east avoided: node-0 (health checks: gpu_errors: x")
    assert found.message.endswith(
        "...), node-1 (health checks: gpu_query: no answer), "
        "node-2 (health checks: gpu_query: no answer), 2 more"
    )
    assert {one for _, _, one in fleet_counts(world.state, world.now).nodes_avoided} == {
        f"node-{number}" for number in range(5)
    }
    world.now += 3600.0
    later = status(world.fleet(), world.plan().waiting, Counts({}, 0.0))
    assert "node_avoided" not in {one.code for one in later.faults}


def test_the_status_has_age_and_reason_of_each_sku_s_oldest_job() -> None:
    world = World(catalogue(sku(max_machines=1), sku("cpu")))
    world.queue(1)
    world.now += 5.0
    world.queue(2, 3)
    (gpu, cpu) = status(world.fleet(), world.plan().waiting, NONE).skus
    assert (gpu.oldest, gpu.reasons[0].code, gpu.blocked) == (5.0, WaitCode.LAUNCH_PLANNED, 2)
    assert (cpu.oldest, cpu.reasons) == (None, ())


def test_jobs_that_have_started_since_the_last_plan_neither_wait_nor_are_held_up() -> None:
    world = World(catalogue(sku(max_machines=1)))
    world.queue(1, 2, 3)
    planned = world.plan().waiting
    world.completes(2)
    seen = status(world.fleet(), planned, NONE)
    assert (seen.waiting, seen.blocked, [one.jobs for one in seen.faults]) == (2, 1, [1])
    world.completes(1)
    world.completes(3)
    seen = status(world.fleet(), planned, NONE)
    assert (seen.waiting, seen.blocked, seen.faults) == (0, 0, ())


def test_a_question_to_github_is_a_fault_once_it_is_unanswered_for_minutes() -> None:
    """However long the job has waited: the question may be new."""
    world = World()
    world.queue(1)
    world.now += 1000.0
    world.observe(1, JobState.WAITING)
    planned = world.plan().waiting
    assert status(world.fleet(), planned, NONE).faults == ()
    world.do(e.JobReadRequested, JobId(1))
    world.now += 179.0
    assert status(world.fleet(), planned, NONE).faults == ()
    world.now += 1.0
    (fault,) = status(world.fleet(), planned, NONE).faults
    assert (fault.code, fault.jobs) == ("job_unconfirmed", 1)
    world.restart(60.0)
    assert status(world.fleet(), planned, NONE).faults == ()


def test_a_run_that_github_does_not_show_is_a_fault_once_it_was_asked_for_minutes() -> None:
    world = World(catalogue(dataclasses.replace(sku(), access=Access(forks=False))))
    world.observe(1, JobState.QUEUED, run_id=7, queued_at=world.now - 1000.0)
    world.do(e.RunReadRequested, 7)
    world.now += 179.0
    assert status(world.fleet(), {}, NONE).faults == ()
    world.now += 1.0
    (fault,) = status(world.fleet(), {}, NONE).faults
    assert (fault.code, fault.jobs) == ("run_unknown", 1)


def test_a_provider_that_is_listed_after_the_start_is_no_fault_before_a_minute() -> None:
    world = World()
    counts = dataclasses.replace(NONE, providers_not_listed=("west",))
    world.do(e.ControllerStarted, 0.0)
    assert status(world.fleet(), {}, counts).faults == ()
    world.after(60.0)
    (fault,) = status(world.fleet(), {}, counts).faults
    assert fault.code == "provider_not_listed"


def test_the_status_shows_open_circuit_breakers_providers_and_machines() -> None:
    world = World()
    for name in ("a", "b", "c"):
        world.launch(1, name)
        world.boot(f"{name}0")
        world.do(e.HealthChecksReported, MachineId(f"{name}0"), False, "gpu_count: 7 of 8")
    world.do(e.HeldByOperator, HoldKind.PAUSED, WHOLE_FLEET, ALICE)
    fails = Fault("store_fails", "", "the store fails")
    counts = Counts(
        {GPU: 0},
        3.5,
        unverified=1,
        not_terminating=2,
        foreign=3,
        providers_not_listed=("west",),
        observed=(fails,),
    )
    world.after(60.0)
    seen = status(world.fleet(), world.plan().waiting, counts)
    assert [(one.code, one.about) for one in seen.faults] == [
        ("store_fails", ""),
        ("provider_not_listed", "west"),
        ("health_check", "gpu"),
        ("machines_not_terminating", ""),
        ("machines_unverified", ""),
        ("machines_foreign", ""),
        ("paused", "all"),
    ]
    assert "gpu_count: 7 of 8" in seen.faults[2].message
    assert seen.dollars_per_hour == 3.5
    assert seen.faults[4].message.startswith("1 machine: ")
    assert seen.faults[5].message == (
        "3 machines: of another installation of this fleet. See autoscaler unverified"
    )


def test_a_circuit_breaker_for_which_jobs_wait_is_one_trouble() -> None:
    world = World()
    world.queue(1)
    for name in ("a", "b", "c"):
        world.ready(name)
        world.do(e.MachineExited, f"{name}0", "it left")
        world.lists(*(world.listed(f"{m}0", terminated=True) for m in ("a", "b", "c") if m <= name))
        world.observe(1, JobState.QUEUED, read=True)
    waiting = world.plan().waiting
    seen = status(world.fleet(), waiting, Counts({GPU: 0}, 0.0))
    assert [(one.code, one.about) for one in seen.faults] == [("circuit_open", "gpu")]
    # Without a waiting job, the breaker is a trouble of its own.
    world.completes(1)
    seen = status(world.fleet(), world.plan().waiting, Counts({GPU: 0}, 0.0))
    assert [(one.code, one.about) for one in seen.faults] == [("circuit_open", "gpu")]
