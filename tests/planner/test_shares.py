"""Fair shares: no repository fills a capped SKU while others wait, and no machine idles because of it."""

import dataclasses
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.model.catalogue import Limits, Sku
from autoscaler.model.identifiers import SkuName
from autoscaler.model.jobs.demand import DemandClass
from autoscaler.model.jobs.job import JobState
from autoscaler.model.plan import Assign, Launch
from autoscaler.planner.matching.shares import filled
from tests.ledger.builders import GPU, GPU_CLASS, World
from tests.planner.fleets import catalogue, sku

REPOSITORIES = ("acme/flood", "acme/small", "acme/other")
LABELS = {name: name.partition("/")[2] for name in REPOSITORIES}
"""Each repository has its own label, so that shares apply between classes."""


def capped(machines: int, share: float) -> Sku:
    shared = sku("gpu", labels=tuple(LABELS.values()), max_machines=machines)
    return dataclasses.replace(shared, fair_share=share)


def world_of(machines: int, share: float) -> World:
    return World(catalogue(capped(machines, share)))


def class_of(repository: str) -> DemandClass:
    return DemandClass("org:acme", "Default", (LABELS[repository],), (GPU,))


def ask(world: World, repository: str, jobs: range) -> None:
    for job in jobs:
        labels = (LABELS[repository],)
        world.observe(job, JobState.QUEUED, labels, repository=repository)


def matched(world: World) -> dict[str, int]:
    """Return how many jobs of each repository have a machine, or one that boots."""
    plan = world.carry_out()
    return {
        name: sum(run.count for run in plan.waiting.get(class_of(name), ()) if not run.blocked)
        for name in REPOSITORIES
    }


@pytest.mark.parametrize(
    ("machines", "share", "expected"),
    [(10, 0.5, 5), (10, 0.25, 2), (10, 0.01, 1), (100, 0.29, 29), (1, 0.5, 1), (10, 1.0, None)],
)
def test_a_share_is_rounded_down_to_no_less_than_one(
    machines: int, share: float, expected: int | None
) -> None:
    assert capped(machines, share).share == expected


def test_a_sku_without_a_cap_has_no_shares() -> None:
    assert dataclasses.replace(sku("gpu"), fair_share=0.5).share is None


@pytest.mark.case(
    "one repository floods the queue, and retries use up the GPUs",
    topic="Complaints about other fleets",
    source="ARC#2736; pytorch#183016",
)
def test_repositories_get_their_share_although_another_queued_many_jobs_first() -> None:
    world = world_of(10, 0.5)
    ask(world, "acme/flood", range(1, 101))
    world.now += 60
    ask(world, "acme/small", range(101, 104))
    assert matched(world) == {"acme/flood": 7, "acme/small": 3, "acme/other": 0}
    world.now += 60
    ask(world, "acme/other", range(201, 301))
    assert matched(world) == {"acme/flood": 5, "acme/small": 3, "acme/other": 2}


def test_a_repository_has_one_share_however_many_labels_it_asks_for() -> None:
    world = world_of(4, 0.5)
    for job, label in enumerate(["flood", "other"] * 10, start=1):
        world.observe(job, JobState.QUEUED, (label,), repository="acme/flood")
    world.now += 1
    ask(world, "acme/small", range(101, 111))
    assert matched(world)["acme/small"] == 2


def test_unused_shares_are_used_by_other_repositories() -> None:
    world = world_of(10, 0.2)
    ask(world, "acme/flood", range(1, 101))
    assert matched(world)["acme/flood"] == 10
    (launch,) = world.state.launch_requests.values()
    assert len(launch.slots) == 10


def test_a_class_of_a_sku_without_a_share_is_never_above_its_share() -> None:
    taken = {(GPU, "acme/flood"): 9, (SkuName("none"), "acme/flood"): 9}
    fleet = world_of(10, 1.0).fleet()
    assert filled(fleet, taken, class_of("acme/flood"), "acme/flood") is False
    nowhere = dataclasses.replace(class_of("acme/flood"), skus=(SkuName("none"),))
    assert filled(fleet, taken, nowhere, "acme/flood") is False


def test_without_a_share_the_oldest_jobs_go_first() -> None:
    world = world_of(10, 1.0)
    ask(world, "acme/flood", range(1, 101))
    world.now += 60
    ask(world, "acme/small", range(101, 104))
    assert matched(world) == {"acme/flood": 10, "acme/small": 0, "acme/other": 0}
    world.observe(1, JobState.IN_PROGRESS, ("flood",), repository="acme/flood")
    assert (world.state.queues_by_repository, world.state.running) == ({}, {})


def test_machines_that_become_ready_go_to_the_class_that_is_next() -> None:
    world = world_of(4, 0.5)
    ask(world, "acme/flood", range(1, 21))
    world.make_ready(4)
    world.now += 1
    ask(world, "acme/small", range(101, 104))
    assigned = Counter(intent.demand for intent in world.intents(Assign))
    assert assigned == {class_of("acme/flood"): 2, class_of("acme/small"): 2}


def test_running_jobs_count_only_in_the_share_of_their_repository() -> None:
    world = world_of(4, 0.5)
    ask(world, "acme/flood", range(1, 21))
    for job, machine in enumerate(world.make_ready(4), start=1):
        labels = (LABELS["acme/flood"],)
        runner = world.assignment(machine, class_of("acme/flood"))
        world.observe(
            job, JobState.IN_PROGRESS, labels, repository="acme/Flood", runner_name=runner
        )
    assert world.state.running == {(GPU, "acme/flood"): 4}
    world.now += 1
    ask(world, "acme/small", range(101, 104))
    assert world.intents(Launch) == []
    for done in (1, 2, 3):
        world.completes(done, (LABELS["acme/flood"],), repository="acme/flood")
        world.lists(world.listed(f"c{done - 1}", terminated=True), complete=False)
        expected = {1: (0, 1), 2: (0, 2), 3: (1, 2)}[done]
        found = matched(world)
        assert (found["acme/flood"], found["acme/small"]) == expected
    assert world.state.running == {(GPU, "acme/flood"): 1}


def test_a_completed_job_does_not_change_the_queues_of_other_repositories() -> None:
    world = world_of(4, 0.5)
    for job, repository in ((1, "acme/flood"), (2, "acme/small")):
        world.observe(job, JobState.QUEUED, ("flood",), repository=repository)
    world.observe(1, JobState.IN_PROGRESS, ("flood",), repository="acme/flood")
    world.completes(1, ("flood",), repository="acme/flood")
    (lines,) = world.fleet().queues_by_repository.values()
    assert list(lines) == ["acme/small"]


def test_the_waiting_reason_names_repositories_that_go_first() -> None:
    world = world_of(4, 0.5)
    ask(world, "acme/flood", range(1, 21))
    world.now += 1
    ask(world, "acme/small", range(101, 104))
    assert world.plan().waiting[class_of("acme/flood")][-1].message == (
        "max_machines of gpu (4) is reached; other repositories go first: the fair_share of gpu "
        "(2 machines) is used up by acme/flood"
    )


def test_the_waiting_reason_names_no_other_repository_of_the_same_class() -> None:
    world = world_of(10, 0.5)
    for job in range(5):
        world.observe(job, JobState.IN_PROGRESS, ("flood",), repository="acme/flood")
    for job in range(10, 40):
        world.observe(job, JobState.QUEUED, ("flood",), repository="acme/flood")
    world.observe(100, JobState.QUEUED, ("flood",), repository="acme/small")
    (runs,) = world.plan().waiting.values()
    assert runs[-1].message == "max_machines of gpu (10) is reached"


def test_the_waiting_reason_names_no_repository_within_its_share() -> None:
    world = world_of(4, 0.5)
    for number, repository in enumerate(("acme/flood", "acme/small")):
        for job in range(10 * number, 10 * number + 2):
            labels = (LABELS[repository],)
            world.observe(job, JobState.IN_PROGRESS, labels, repository=repository)
        ask(world, repository, range(100 * number + 50, 100 * number + 60))
    for runs in world.carry_out().waiting.values():
        assert "other repositories go first" not in runs[-1].message


@pytest.mark.case(
    "a job is in progress or waiting, and no webhook reports its end: it counts as ended after 5 "
    "or 35 days",
    topic="GitHub's events",
    source="GitHub: Actions limits",
)
def test_a_job_whose_end_is_never_reported_leaves_the_share_when_it_expires() -> None:
    world = world_of(10, 0.2)
    for job in (1, 2):
        world.observe(job, JobState.IN_PROGRESS, ("flood",), repository="acme/flood")
    assert filled(world.fleet(), {}, class_of("acme/flood"), "acme/flood")
    world.restart(30 * 86_400.0)
    world.after(0.0)
    assert not filled(world.fleet(), {}, class_of("acme/flood"), "acme/flood")


def test_a_waiting_reason_names_only_a_few_repositories() -> None:
    world = world_of(4, 0.25)
    for number in range(6):
        for job in range(10 * number, 10 * number + 5):
            world.observe(job, JobState.QUEUED, ("flood",), repository=f"acme/r{number}")
    ask(world, "acme/small", range(101, 102))
    run = world.plan().waiting[DemandClass("org:acme", "Default", ("flood",), (GPU,))][-1]
    assert run.message.endswith("acme/r0, acme/r1, acme/r2, ...")


def test_the_waiting_reason_of_the_only_repository_names_no_other() -> None:
    world = world_of(4, 0.5)
    ask(world, "acme/flood", range(1, 21))
    for job in range(21, 41):
        world.observe(job, JobState.QUEUED, ("small",), repository="acme/flood")
    for runs in world.plan().waiting.values():
        assert runs[-1].message == "max_machines of gpu (4) is reached"


def test_the_cap_of_the_fleet_is_shared_like_that_of_a_sku() -> None:
    known = catalogue(capped(10, 0.2), limits=Limits(machines=4))
    world = World(known)
    ask(world, "acme/flood", range(1, 21))
    world.now += 1
    ask(world, "acme/small", range(101, 120))
    assert matched(world) == {"acme/flood": 2, "acme/small": 2, "acme/other": 0}


@pytest.mark.case(
    "one repository floods the queue, and retries use up the GPUs",
    topic="Complaints about other fleets",
    source="ARC#2736; pytorch#183016",
)
@settings(derandomize=True, deadline=None, max_examples=25, database=None)
@given(machines=st.integers(2, 6), share=st.sampled_from([0.2, 0.34, 0.5]))
def test_small_repositories_are_served_while_another_has_many_jobs(
    machines: int, share: float
) -> None:
    """Each round, every machine runs one job, and GitHub assigns the oldest job of a class."""
    world, late = world_of(machines, share), range(1001, 1021)
    ask(world, "acme/flood", range(1, 1001))
    world.now += 1
    for number, job in enumerate(late):
        ask(world, ("acme/small", "acme/other")[number % 2], range(job, job + 1))
    for turn in range(100):
        if all(world.job(job).state is JobState.COMPLETED for job in late):
            break
        assert _one_turn(world, f"t{turn}") == machines
    # Two repositories have 10 jobs each, and the third uses its share of each round.
    least = max(1, int(machines * share))
    assert turn <= 20 // min(2 * least, machines - least) + 2


def _one_turn(world: World, name: str) -> int:
    """Assign the machines of the plan to each class and run their jobs. Return how many ran."""
    plan = world.plan()
    jobs = [
        job
        for demand, runs in plan.waiting.items()
        for job in world.state.queues[demand].values()[
            : sum(r.count for r in runs if not r.blocked)
        ]
    ]
    for job, machine in zip(jobs, world.make_ready(len(jobs), name), strict=True):
        runner = world.assignment(machine, job.demand or GPU_CLASS)
        reported = {"repository": job.repository, "runner_name": runner}
        world.observe(job.id, JobState.IN_PROGRESS, job.labels, **reported)
        world.observe(job.id, JobState.COMPLETED, job.labels, **reported)
        world.lists(world.listed(machine, terminated=True), complete=False)
    return len(jobs)


@pytest.mark.case(
    "one repository floods the queue, and retries use up the GPUs",
    topic="Complaints about other fleets",
    source="ARC#2736; pytorch#183016",
)
@settings(derandomize=True, deadline=None, max_examples=150, database=None)
@given(
    machines=st.integers(1, 12),
    share=st.sampled_from([0.1, 0.25, 0.34, 0.5, 0.75, 0.99]),
    queued=st.lists(
        st.tuples(st.sampled_from(REPOSITORIES), st.integers(1, 15)), min_size=1, max_size=8
    ),
    running=st.lists(st.sampled_from(REPOSITORIES), max_size=6),
)
def test_repositories_below_their_share_go_first_and_the_cap_is_used(
    machines: int, share: float, queued: list[tuple[str, int]], running: list[str]
) -> None:
    world = world_of(machines, share)
    busy = running[:machines]
    job = 0
    for slot, name in zip(world.make_ready(len(busy)) if busy else (), busy, strict=True):
        job += 1
        runner = world.assignment(slot, class_of(name))
        labels = (LABELS[name],)
        world.observe(job, JobState.IN_PROGRESS, labels, repository=name, runner_name=runner)
    wanted: Counter[str] = Counter()
    for name, count in queued:
        world.now += 1
        ask(world, name, range(job + 1, job + 1 + count))
        job, wanted[name] = job + count, wanted[name] + count
    got = matched(world)

    assert sum(got.values()) == min(sum(wanted.values()), machines - len(busy))
    has = {name: got[name] + busy.count(name) for name in REPOSITORIES}
    most = capped(machines, share).share
    assert most is not None
    starved = [name for name in REPOSITORIES if got[name] < wanted[name] and has[name] < most]
    for name in REPOSITORIES:
        above = has[name] > most and got[name] > 0
        assert not (above and starved), (got, has, most)
    assert world.plan().intents == ()
