"""Runs of forks: which jobs become demand, which do not, and jobs that ran outside their SKU's access."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from autoscaler.ledger.jobs.runs import MOST_RUNS, OUTSIDE_ACCESS
from autoscaler.ledger.records.state import LedgerState
from autoscaler.model import events as e
from autoscaler.model.catalogue import Access, Scope, Sku
from autoscaler.model.identifiers import JobId, RunnerName
from autoscaler.model.jobs.job import Admission, JobState, RunOrigin
from autoscaler.model.plan import Launch, ReadJob, ReadRun
from autoscaler.model.reasons.table import WaitCode
from tests.ledger.builders import World
from tests.planner.fleets import catalogue, next_name, sku

CLOSED = Access(forks=False)

OWN = RunOrigin(from_fork=False, public=False, branch="main")
ELSEWHERE = RunOrigin(from_fork=False, public=False, branch="topic")
PULL_REQUEST = RunOrigin(from_fork=False, public=False, branch=None)
PUBLIC = RunOrigin(from_fork=False, public=True, branch="main")
FORK = RunOrigin(from_fork=True, public=False, branch=None)


def closed(name: str = "gpu", **more: object) -> Sku:
    """A SKU that takes no jobs of forks, as every SKU of a fleet.yaml does by default."""
    return replace(sku(name, **more), access=CLOSED)  # type: ignore[arg-type]


def rows(state: LedgerState, event: str) -> list[str]:
    """The details of the history's rows of one kind."""
    return [row.detail for row in state.take_changes().history if row.event == event]


@pytest.mark.parametrize("state", [JobState.QUEUED, JobState.WAITING])
def test_a_job_is_not_demand_until_the_head_repository_of_its_run_is_known(state: JobState) -> None:
    world = World(catalogue(closed()))
    world.observe(1, state, run_id=7)
    assert world.intents(Launch) == []
    assert world.intents(ReadRun) == [ReadRun("acme/widgets", 7)]
    world.carry_out()
    assert world.intents(ReadRun) == [], "asked once"
    world.do(e.RunRead, 7, OWN)
    world.observe(1, JobState.QUEUED, run_id=7, read=True)
    assert len(world.intents(Launch)) == 1
    assert world.plan().waiting[next(iter(world.state.queues))][0].code is WaitCode.LAUNCH_PLANNED


def test_a_job_of_a_fork_is_not_demand_and_has_a_reason() -> None:
    world = World(catalogue(closed()))
    world.observe(1, JobState.QUEUED, run_id=7)
    (waiting,) = world.plan().waiting.values()
    assert [(run.code, run.blocked) for run in waiting] == [(WaitCode.RUN_UNKNOWN, True)]
    world.do(e.RunRead, 7, FORK)
    assert rows(world.state, Admission.FORK)
    (waiting,) = world.plan().waiting.values()
    assert [(run.count, run.code, run.blocked) for run in waiting] == [
        (1, WaitCode.FORK_NOT_ALLOWED, True)
    ]
    assert "access.forks" in waiting[0].message
    world.after(3600.0)
    assert world.intents(Launch) == world.intents(ReadRun) == []


def test_one_read_of_the_run_decides_about_all_its_jobs() -> None:
    world = World(catalogue(closed(), closed("cpu")))
    world.observe(1, JobState.QUEUED, run_id=7)
    world.observe(2, JobState.QUEUED, ("cpu",), run_id=7)
    assert world.intents(ReadRun) == [ReadRun("acme/widgets", 7)]
    world.carry_out()
    world.do(e.RunRead, 7, FORK)
    world.observe(3, JobState.QUEUED, run_id=7)
    assert {world.job(n).admission for n in (1, 2, 3)} == {Admission.FORK}
    assert len(rows(world.state, Admission.FORK)) == 3
    assert world.intents(ReadRun) == []


def test_a_job_of_a_fork_goes_to_the_skus_that_take_it() -> None:
    opened = replace(sku("open", labels=("shared",)), access=Access(forks=True))
    world = World(catalogue(closed(labels=("shared",)), opened))
    world.observe(1, JobState.QUEUED, ("shared",), run_id=7)
    assert world.intents(Launch) == []
    world.do(e.RunRead, 7, FORK)
    demand = world.job(1).demand
    assert demand is not None
    assert demand.skus == ("open",)
    assert [launch.sku for launch in world.intents(Launch)] == ["open"]


@pytest.mark.parametrize(
    ("origin", "access", "refusal"),
    [
        (PUBLIC, Access(public_repositories=False, forks=True), Admission.PUBLIC_REPOSITORY),
        (OWN, Access(public_repositories=False, forks=True), None),
        (OWN, Access(branches=("release/*", "main"), forks=True), None),
        (ELSEWHERE, Access(branches=("release/*", "main"), forks=True), Admission.BRANCH),
        (PULL_REQUEST, Access(branches=("*",), forks=True), Admission.BRANCH),
        (FORK, Access(branches=("*",), forks=True), Admission.BRANCH),
        (FORK, Access(forks=False, branches=("main",)), Admission.FORK),
        (replace(OWN, branch="Main"), Access(branches=("main",), forks=True), Admission.BRANCH),
        (replace(OWN, branch="release/1/2"), Access(branches=("release/*",), forks=True), None),
    ],
)
def test_the_visibility_and_the_branch_of_a_run_decide_too(
    origin: RunOrigin, access: Access, refusal: Admission | None
) -> None:
    world = World(catalogue(replace(sku(), access=access)))
    world.observe(1, JobState.QUEUED, run_id=7)
    assert world.intents(Launch) == []
    assert world.intents(ReadRun) == [ReadRun("acme/widgets", 7)]
    world.do(e.RunRead, 7, origin)
    assert len(world.intents(Launch)) == (refusal is None)
    (waiting,) = world.plan().waiting.values()
    assert [run.code for run in waiting] == [
        WaitCode(refusal.value) if refusal else WaitCode.LAUNCH_PLANNED
    ]
    if refusal is not None:
        assert len(rows(world.state, refusal)) == 1
        assert "access." in waiting[0].message


def test_runs_of_a_thousand_branches_share_one_class() -> None:
    """The planner works by class: a class for each branch would make thousands."""
    guarded = replace(sku(labels=("shared",)), access=Access(branches=("main",), forks=True))
    world = World(catalogue(guarded, sku("open", labels=("shared",))))
    for number in range(1, 1001):
        world.do(e.RunRead, number, replace(OWN, branch=f"topic/{number}"))
        world.observe(number, JobState.QUEUED, ("shared",), run_id=number)
    world.do(e.RunRead, 2000, OWN)
    world.observe(2000, JobState.QUEUED, ("shared",), run_id=2000)
    found = {demand.skus: len(jobs) for demand, jobs in world.state.queues.items()}
    assert found == {("open",): 1000, ("gpu", "open"): 1}
    assert len({id(world.job(number).demand) for number in range(1, 1001)}) == 1


def test_a_job_that_two_skus_refuse_has_the_reason_of_the_first() -> None:
    guarded = replace(sku(labels=("shared",)), access=Access(branches=("main",), forks=True))
    private = replace(
        sku("open", labels=("shared",)), access=Access(public_repositories=False, forks=True)
    )
    world = World(catalogue(guarded, private))
    world.observe(1, JobState.QUEUED, ("shared",), run_id=7)
    world.do(e.RunRead, 7, replace(PUBLIC, branch="topic"))
    assert world.job(1).admission is Admission.BRANCH


def test_no_run_is_read_if_every_sku_takes_jobs_of_forks() -> None:
    world = World()
    world.observe(1, JobState.QUEUED, run_id=7)
    assert world.intents(ReadRun) == []
    assert len(world.intents(Launch)) == 1


@pytest.mark.parametrize(("others", "longest"), [(0, 60.0), (19, 60.0), (99, 300.0), (999, 600.0)])
def test_a_run_that_cannot_be_read_is_retried_with_backoff(others: int, longest: float) -> None:
    """About once a minute, but of many runs at most 20 a minute, or each every ten minutes."""
    world = World(catalogue(closed()))
    world.observe(1, JobState.QUEUED, run_id=7)
    for number in range(others):
        world.observe(100 + number, JobState.QUEUED, run_id=100 + number)
    asked = []
    for _ in range(120):
        if any(read.run_id == 7 for read in world.intents(ReadRun)):
            asked.append(world.now)
        world.carry_out()
        world.after(15.0)
    waits = [after - before for before, after in pairwise(asked)]
    assert waits[:3] == [15.0, 30.0, 60.0]
    assert max(waits) == longest
    assert world.intents(Launch) == []


def test_planned_reads_of_runs_without_waiting_jobs_are_dropped() -> None:
    world = World(catalogue(closed()))
    for number in range(1, 400):
        world.observe(number, JobState.QUEUED, run_id=number)
        world.carry_out()
        world.completes(number)
    assert world.state.unread == {}
    assert len(world.state.run_questions) < 150


def test_a_job_without_a_run_id_is_read_itself() -> None:
    world = World(catalogue(closed()))
    world.queue(1)
    assert world.intents(ReadJob) == [ReadJob(JobId(1))]
    world.observe(1, JobState.QUEUED, run_id=7, read=True)
    assert world.intents(ReadRun) == [ReadRun("acme/widgets", 7)]


def test_the_origin_of_a_run_survives_a_restart() -> None:
    world = World(catalogue(closed()))
    world.observe(1, JobState.QUEUED, run_id=7)
    world.do(e.RunRead, 7, OWN)
    again = World(catalogue(closed()))
    again.ledger.restore([world.job(1)], [])
    again.observe(2, JobState.QUEUED, run_id=7)
    assert again.intents(ReadRun) == []
    assert {again.job(n).admission for n in (1, 2)} == {Admission.ADMITTED}


def test_the_number_of_remembered_run_origins_is_bounded() -> None:
    world = World(catalogue(closed()))
    for run in range(MOST_RUNS + 5):
        world.do(e.RunRead, run, OWN)
    assert len(world.state.run_origins) == MOST_RUNS
    assert 0 not in world.state.run_origins


def listening(world: World) -> RunnerName:
    """A runner that listens on a machine of `gpu`, with id 7 at GitHub."""
    name = world.ready()
    world.state.take_changes()
    return name


@pytest.mark.case(
    "GitHub gives a runner to a job that the SKU's `access` does not admit",
    topic="GitHub's events",
    source="GitHub: runner groups",
)
@pytest.mark.parametrize(
    ("repository", "origin", "says"),
    [
        ("acme/widgets", OWN, None),
        ("acme/widgets", FORK, "fork: job 2 of acme/widgets"),
        ("acme/widgets", PUBLIC, "public_repository: job 2 of acme/widgets"),
        ("acme/widgets", ELSEWHERE, "branch: job 2 of acme/widgets"),
        ("acme/secret", OWN, "repository: job 2 of acme/secret"),
        ("acme/secret", FORK, "repository: job 2 of acme/secret"),
    ],
)
def test_a_job_outside_the_access_of_its_sku_is_recorded_once(
    repository: str, origin: RunOrigin, says: str | None
) -> None:
    """GitHub gives a runner to any job that its group admits and its labels cover."""
    access = Access(("acme/widgets",), forks=False, public_repositories=False, branches=("main",))
    world = World(catalogue(replace(closed(), access=access)))
    name = listening(world)
    said: dict[str, Any] = {
        "repository": repository,
        "run_id": 8,
        "runner_name": name,
        "runner_id": 7,
    }
    world.observe(2, JobState.IN_PROGRESS, **said)
    assert world.intents(ReadRun) == [ReadRun(repository, 8)]
    world.completes(2, **said)
    world.do(e.RunRead, 8, origin)
    world.completes(2, **said)
    assert rows(world.state, OUTSIDE_ACCESS) == ([] if says is None else [says])
    assert world.runner(name).job == 2


def test_the_run_of_a_job_that_matches_a_runner_but_no_sku_is_read() -> None:
    """`runs-on: [self-hosted, linux]` names no SKU, and a runner with more labels takes it."""
    world = World(catalogue(closed()))
    name = listening(world)
    said: dict[str, Any] = {"run_id": 8, "runner_name": name, "runner_id": 7}
    world.observe(2, JobState.IN_PROGRESS, ("self-hosted", "linux"), **said)
    assert world.job(2).demand is None
    world.do(e.RunRead, 8, FORK)
    assert rows(world.state, OUTSIDE_ACCESS) == ["fork: job 2 of acme/widgets"]


OUTSIDE = (Scope("acme", None, repositories=("acme/widgets",)),)


@pytest.mark.case(
    "a repository outside every scope registers a runner with a name of this fleet",
    topic="GitHub's events",
    source="GitHub: secure use",
)
@pytest.mark.parametrize("repository", ["acme/elsewhere", "stranger/widgets"])
@pytest.mark.parametrize("state", [JobState.IN_PROGRESS, JobState.COMPLETED])
@pytest.mark.parametrize("runner_id", [None, 7, 8])
def test_a_job_outside_the_scopes_that_names_a_runner_changes_no_record(
    repository: str, state: JobState, runner_id: int | None
) -> None:
    world = World(replace(catalogue(closed()), scopes=OUTSIDE))
    name = listening(world)
    machine = world.machine(world.runner(name).machine)
    before = (replace(machine), replace(world.runner(name)))
    said: dict[str, Any] = {"repository": repository, "runner_name": name, "runner_id": runner_id}
    world.observe(2, state, **said)
    world.observe(2, state, **said)
    assert (machine, world.runner(name)) == before
    seen = repository == "acme/elsewhere" and runner_id == 7
    assert len(rows(world.state, OUTSIDE_ACCESS)) == seen


@pytest.mark.case(
    "a repository outside every scope registers a runner with a name of this fleet",
    topic="GitHub's events",
    source="GitHub: secure use",
)
def test_a_job_outside_the_scopes_changes_no_machine_of_a_restored_store() -> None:
    """The registration is not in the store: only the runner's name points to the machine."""
    world = World(replace(catalogue(closed()), scopes=OUTSIDE))
    (machine,) = world.make_ready()
    name = next_name(world.ledger, machine)
    world.restart(100.0)
    before = replace(world.machine(machine))
    world.observe(2, JobState.IN_PROGRESS, repository="stranger/widgets", runner_name=name)
    assert world.machine(machine) == before
    world.observe(3, JobState.IN_PROGRESS, repository="acme/widgets", runner_name=name)
    assert world.machine(machine).work.unverified
