"""Lists of jobs and machines: filters, totals and pages."""

import pytest

from autoscaler.model.catalogue import Limits
from autoscaler.model.identifiers import MachineId, ProviderName, SkuName
from autoscaler.model.jobs.job import JobState
from autoscaler.model.machines.machine import MachineState
from autoscaler.views.jobs.lists import JobFilter, running_jobs, unmatched_jobs, waiting_jobs
from autoscaler.views.listed import Part
from autoscaler.views.machines import MachineFilter, knows_provider, machines
from tests.ledger.builders import GPU, World
from tests.planner.fleets import catalogue, sku

EVERY = Part(0, 250)
CPU = SkuName("cpu")


@pytest.fixture
def crowd() -> World:
    """Ten jobs, one each ten minutes, in turn for two SKUs and of two repositories; one machine is allowed."""
    world = World(catalogue(sku(), sku("cpu"), limits=Limits(machines=1)))
    for job in range(10):
        label, repository = ("gpu", "cpu")[job % 2], ("acme/Widgets", "acme/b")[job // 5]
        world.observe(job + 1, JobState.QUEUED, labels=(label,), repository=repository)
        world.now += 600.0
    return world


def shown(world: World, chosen: JobFilter, part: Part = EVERY) -> list[int]:
    found = waiting_jobs(world.fleet(), world.plan().waiting, chosen, part)
    if part == EVERY:
        assert found.total == len(found.rows)
    return [job.id for job in found.rows]


def test_pages_of_jobs_follow_one_another_and_have_the_same_total(crowd: World) -> None:
    fleet, reasons = crowd.fleet(), crowd.plan().waiting
    pages = [waiting_jobs(fleet, reasons, JobFilter(), Part(skip, 4)) for skip in (0, 4, 8, 12)]
    ids = [[job.id for job in page.rows] for page in pages]
    assert ids == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10], []]
    assert [page.total for page in pages] == [10] * 4


@pytest.mark.parametrize(
    ("chosen", "ids"),
    [
        (JobFilter(sku=CPU), [2, 4, 6, 8, 10]),
        (JobFilter(repository="ACME/widgets"), [1, 2, 3, 4, 5]),
        (JobFilter(repository="acme/none"), []),
        # Job 10 was queued ten minutes ago: no longer ago than that.
        (JobFilter(older_than=600.0), [1, 2, 3, 4, 5, 6, 7, 8, 9]),
        (JobFilter(older_than=599.0), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
        (JobFilter(older_than=7200.0), []),
        (JobFilter(code="launch_planned"), [1]),
        (JobFilter(code="fleet_machines"), [2, 3, 4, 5, 6, 7, 8, 9, 10]),
        (JobFilter(code="machine_booting"), []),
        (JobFilter(CPU, "acme/b", "fleet_machines", 1800.0), [6]),
    ],
)
def test_jobs_are_narrowed(crowd: World, chosen: JobFilter, ids: list[int]) -> None:
    assert shown(crowd, chosen) == ids


def test_jobs_are_counted_by_reason_whatever_reason_is_shown(crowd: World) -> None:
    fleet, reasons = crowd.fleet(), crowd.plan().waiting
    for code in ("", "fleet_machines"):
        found = waiting_jobs(fleet, reasons, JobFilter(code=code), Part(0, 1))
        assert found.counts == {"launch_planned": 1, "fleet_machines": 9}
    found = waiting_jobs(fleet, reasons, JobFilter(sku=CPU), Part(0, 1))
    assert (found.total, found.counts) == (5, {"fleet_machines": 5})


def test_a_row_has_the_reason_by_which_it_was_found(crowd: World) -> None:
    crowd.queue(11)
    reasons = crowd.plan().waiting
    crowd.queue(12)  # the plan does not know it
    for code in ("launch_planned", "fleet_machines", "not_planned"):
        found = waiting_jobs(crowd.fleet(), reasons, JobFilter(code=code), EVERY)
        assert found.rows
        assert {job.wait.code.value for job in found.rows if job.wait is not None} == {code}


def test_jobs_about_which_github_decides_are_narrowed_with_the_others() -> None:
    world = World()
    world.queue(1, 2)
    world.observe(1, JobState.WAITING)
    world.queue(1)
    assert shown(world, JobFilter()) == [1, 2]
    assert shown(world, JobFilter(code="job_unconfirmed")) == [1]
    assert shown(world, JobFilter(code="launch_planned")) == [2]
    world.now += 60.0
    assert shown(world, JobFilter(older_than=59.0)) == [1, 2]
    assert shown(world, JobFilter(older_than=60.0)) == []
    assert shown(world, JobFilter(repository="acme/other")) == []


def test_jobs_without_a_sku_are_narrowed_and_counted() -> None:
    world = World()
    for job, repository in ((1, "acme/a"), (2, "acme/b"), (3, "acme/a")):
        world.observe(job, JobState.QUEUED, labels=("gpuu",), repository=repository)
        world.now += 600.0
    found = unmatched_jobs(world.fleet(), JobFilter(repository="acme/a"), Part(1, 1))
    assert ([job.id for job in found.rows], found.total, found.counts) == ([3], 2, {"labels": 2})
    assert unmatched_jobs(world.fleet(), JobFilter(older_than=1200.0), EVERY).total == 1
    assert unmatched_jobs(world.fleet(), JobFilter(code="access"), EVERY).total == 0


def test_running_jobs_are_narrowed_by_how_long_they_run() -> None:
    world = World()
    for job in (1, 2, 3):
        world.queue(job)
        world.starts(job, world.ready(f"r{job}-"))
        world.now += 600.0

    def ids(chosen: JobFilter, part: Part = EVERY) -> tuple[list[int], int]:
        found = running_jobs(world.fleet(), {}, chosen, part)
        return [job.id for job in found.rows], found.total

    assert ids(JobFilter()) == ([1, 2, 3], 3)
    assert ids(JobFilter(), Part(1, 1)) == ([2], 3)
    started = [world.job(job).started_at or 0.0 for job in (1, 2, 3)]
    assert ids(JobFilter(older_than=world.now - started[1])) == ([1], 1)
    assert ids(JobFilter(repository="acme/none")) == ([], 0)
    assert ids(JobFilter(sku=CPU)) == ([], 0)


def test_machines_are_narrowed_counted_and_in_pages() -> None:
    world = World(catalogue(sku(), sku("cpu")))
    world.make_ready(2, "r")
    world.launch(3, "l")
    world.launch(1, "o", sku="cpu")
    pages = [machines(world.fleet(), MachineFilter(), Part(skip, 4)) for skip in (0, 4, 8)]
    assert [[one.id for one in page.rows] for page in pages] == [
        ["o0", "l0", "l1", "l2"],
        ["r0", "r1"],
        [],
    ]
    assert {page.total for page in pages} == {6}
    assert pages[0].counts == {"launched": 4, "ready": 2}
    ready = machines(world.fleet(), MachineFilter(GPU, MachineState.READY), Part(1, 9))
    assert ([one.id for one in ready.rows], ready.total) == (["r1"], 2)
    assert ready.counts == {"launched": 3, "ready": 2}
    here = world.state.machines[MachineId("r0")].provider
    assert machines(world.fleet(), MachineFilter(provider=here), EVERY).total == 6
    other = machines(world.fleet(), MachineFilter(provider=ProviderName("other")), EVERY)
    assert (other.rows, other.total) == ([], 0)
    assert knows_provider(world.fleet(), here)
    assert not knows_provider(world.fleet(), ProviderName("other"))
