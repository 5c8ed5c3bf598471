"""Jobs only move forward; a job that webhooks leave uncertain is disputed until it is read at GitHub."""

import dataclasses

import pytest

from autoscaler.ledger.jobs.reports import ABANDONED
from autoscaler.model import events as e
from autoscaler.model.identifiers import JobId, RunnerName
from autoscaler.model.jobs.job import JobState, Question
from autoscaler.model.jobs.runners import RunnerState
from tests.ledger.builders import GPU, GPU_CLASS, START, World
from tests.planner.fleets import catalogue, sku

WAITING, QUEUED, IN_PROGRESS, COMPLETED = JobState
DAY = 86_400.0


def queue_of(world: World) -> list[int]:
    queue = world.state.queues.get(GPU_CLASS)
    return [job.id for job in queue.values()] if queue is not None else []


def test_a_queued_job_is_demand_of_its_class_from_when_github_queued_it() -> None:
    world = World()
    world.observe(2, QUEUED, queued_at=900.0, name="build", workflow="ci", run_id=5)
    world.observe(1, QUEUED, queued_at=950.0)
    job = world.job(2)
    assert (job.state, job.demand, job.labels) == (QUEUED, GPU_CLASS, ("gpu",))
    assert (job.queued_at, job.updated_at) == (900.0, START)
    assert (job.name, job.workflow, job.run_id, job.run_attempt) == ("build", "ci", 5, 1)
    assert (job.runner_name, job.started_at, job.completed_at, job.read_at) == (None,) * 4
    assert queue_of(world) == [2, 1]


def test_a_job_that_no_sku_serves_is_stored_without_a_class() -> None:
    world = World()
    world.queue(1, labels=("other",))
    assert world.job(1).demand is None
    assert not world.state.queues
    world.starts(1, "stranger", ("other",))
    world.completes(1, ("other",))
    assert world.job(1).state is COMPLETED


def test_a_waiting_job_is_not_demand() -> None:
    world = World()
    world.observe(1, WAITING)
    assert queue_of(world) == []
    assert world.job(1).demand == GPU_CLASS
    assert not world.state.reads


@pytest.mark.parametrize(("first", "second"), [(QUEUED, WAITING), (WAITING, QUEUED)])
def test_a_job_reported_as_queued_and_waiting_is_disputed_and_read(
    first: JobState, second: JobState
) -> None:
    world = World()
    world.observe(1, first)
    world.now += 5
    world.observe(1, second)
    assert world.job(1).disputed
    assert world.job(1).state is first
    assert queue_of(world) == []
    assert world.state.reads == {1: Question(START + 5, START + 5)}


@pytest.mark.parametrize("truth", [QUEUED, WAITING])
def test_githubs_answer_settles_a_dispute(truth: JobState) -> None:
    world = World()
    world.queue(1)
    world.observe(1, WAITING)
    world.now += 3
    world.observe(1, truth, read=True)
    job = world.job(1)
    assert (job.state, job.disputed, job.read_at) == (truth, False, START + 3)
    assert job.updated_at == START + 3
    assert not world.state.reads
    assert queue_of(world) == ([1] if truth is QUEUED else [])


def test_repeated_webhooks_do_not_settle_a_dispute() -> None:
    world = World()
    world.queue(1)
    world.observe(1, WAITING)
    world.queue(1)
    assert world.job(1).disputed
    assert 1 in world.state.reads


@pytest.mark.parametrize("later", [IN_PROGRESS, COMPLETED])
def test_a_disputed_job_that_starts_or_completes_is_settled(later: JobState) -> None:
    world = World()
    world.queue(1)
    world.observe(1, WAITING)
    world.observe(1, later)
    assert (world.job(1).state, world.job(1).disputed) == (later, False)
    assert not world.state.reads


def test_a_read_without_an_answer_is_due_again_a_minute_later() -> None:
    world = World()
    world.queue(1)
    world.observe(1, WAITING)
    world.do(e.JobReadRequested, JobId(1))
    assert world.state.reads == {1: Question(START, START + 60.0, 1)}
    world.do(e.JobReadRequested, JobId(2))
    assert world.state.reads == {1: Question(START, START + 60.0, 1)}


def test_a_read_adds_an_unknown_job() -> None:
    world = World()
    world.observe(1, QUEUED, read=True)
    assert (world.job(1).read_at, queue_of(world)) == (START, [1])
    assert [row.detail for row in world.ledger.take_changes().history] == ["read"]


def test_a_job_in_progress_is_not_demand_and_counts_for_its_sku() -> None:
    world = World()
    world.queue(1)
    world.now += 7
    world.starts(1, "r-1")
    job = world.job(1)
    assert (job.state, job.runner_name, job.started_at) == (IN_PROGRESS, "r-1", START + 7)
    assert queue_of(world) == []
    assert world.state.in_progress == {GPU: 1}
    world.completes(1)
    assert +world.state.in_progress == {}


@pytest.mark.parametrize("read", [True, False])
@pytest.mark.parametrize("late", [QUEUED, WAITING])
def test_late_job_events_change_no_state(late: JobState, read: bool) -> None:
    world = World()
    world.starts(1, "r-1")
    world.observe(1, late, read=read)
    assert (world.job(1).state, world.job(1).disputed) == (IN_PROGRESS, False)
    world.completes(1)
    world.starts(1, "r-2")
    world.observe(1, late, read=read)
    assert (world.job(1).state, world.job(1).disputed) == (COMPLETED, False)
    assert world.job(1).runner_name == "r-1"


def test_a_completed_event_that_comes_first_is_stored_with_its_fields() -> None:
    world = World()
    world.completes(1, (), completed_at=990.0, conclusion="skipped")
    job = world.job(1)
    assert (job.completed_at, job.conclusion, job.started_at) == (990.0, "skipped", None)
    assert (job.labels, job.demand) == ((), None)


def test_labels_that_come_later_give_the_job_its_class() -> None:
    world = World()
    world.completes(1, ())
    world.observe(1, QUEUED, ("GPU",))
    assert (world.job(1).labels, world.job(1).demand) == (("gpu",), GPU_CLASS)
    assert world.job(1).state is COMPLETED
    assert queue_of(world) == []


def test_a_completed_event_without_labels_keeps_the_demand_class() -> None:
    world = World()
    world.queue(1)
    world.completes(1, ())
    assert (world.job(1).labels, world.job(1).demand) == (("gpu",), GPU_CLASS)
    assert world.job(1).completed_at == START


def test_a_repeated_completed_event_of_an_old_attempt_removes_no_new_job() -> None:
    world = World()
    for old in range(1, 6):
        world.queue(old)
        world.completes(old)
    world.now += 60
    world.queue(10)
    for old in range(1, 6):
        world.completes(old)
    assert queue_of(world) == [10]
    assert world.job(1).completed_at == START


def test_the_first_value_of_a_field_is_kept_and_gaps_are_filled() -> None:
    world = World()
    world.observe(1, QUEUED, queued_at=950.0)
    world.observe(1, QUEUED, queued_at=940.0, name="build", workflow="ci", run_id=5, run_attempt=2)
    world.observe(1, QUEUED, queued_at=960.0, name="other", workflow="x", run_id=6)
    job = world.job(1)
    assert (job.queued_at, job.name, job.workflow) == (940.0, "build", "ci")
    assert (job.run_id, job.run_attempt) == (5, 2)
    world.observe(1, IN_PROGRESS, runner_name=RunnerName("r"), started_at=970.0)
    world.completes(1, runner_name=RunnerName("s"), started_at=971.0, completed_at=980.0)
    world.completes(1, completed_at=999.0, conclusion="success")
    assert (job.runner_name, job.started_at, job.completed_at) == ("r", 970.0, 980.0)
    assert job.conclusion == "success"


def test_a_queued_job_has_no_runner_even_if_the_delivery_names_one() -> None:
    world = World()
    world.observe(1, QUEUED, runner_name=RunnerName("r-1"), started_at=1.0, conclusion="success")
    job = world.job(1)
    assert (job.runner_name, job.started_at, job.conclusion) == (None, None, None)


@pytest.mark.case(
    "GitHub may give a job to any idle runner with its labels: the controller binds the job when "
    "`in_progress` names the runner",
    topic="GitHub's events",
    source="actions/runner#620; actions/scaleset",
)
def test_in_progress_binds_the_job_to_the_runner_it_names() -> None:
    world = World()
    runner = world.ready()
    world.queue(1)
    world.starts(1, runner)
    assert (world.runner(runner).state, world.runner(runner).job) == (RunnerState.BUSY, 1)
    world.completes(1)
    assert world.runner(runner).state is RunnerState.DONE
    assert world.runner(runner).reason == "job 1 completed"


def test_a_job_on_a_foreign_runner_makes_no_runner_busy() -> None:
    world = World()
    runner = world.ready()
    world.starts(1, "of-another-fleet")
    assert world.runner(runner).state is RunnerState.LISTENING
    assert world.runner(runner).job is None


def test_completed_that_overtakes_in_progress_closes_the_runner_too() -> None:
    world = World()
    runner = world.ready()
    world.completes(1, runner_name=runner)
    assert (world.runner(runner).state, world.runner(runner).job) == (RunnerState.DONE, 1)
    world.starts(1, runner)
    assert world.runner(runner).state is RunnerState.DONE


def test_a_job_may_start_before_the_agent_acknowledges_its_registration() -> None:
    world = World()
    runner = world.register(world.make_ready()[0])
    world.starts(1, runner)
    assert world.runner(runner).state is RunnerState.BUSY


def test_an_unlabelled_skus_job_completes_with_empty_labels_in_its_class() -> None:
    world = World(catalogue(dataclasses.replace(sku(), unlabelled=True)))
    world.queue(1, labels=())
    demand = world.job(1).demand
    assert demand is not None
    assert demand.labels == ()
    world.completes(1, ())
    assert world.job(1).demand == demand


def test_the_history_has_states_disputes_and_their_source() -> None:
    world = World()
    world.queue(1)
    world.queue(1)
    world.observe(1, WAITING)
    world.observe(1, QUEUED, read=True)
    world.starts(1, "r")
    rows = [(r.kind, r.record, r.event, r.detail) for r in world.ledger.take_changes().history]
    assert rows == [
        ("job", "1", "queued", "webhook"),
        ("job", "1", "disputed", "webhook"),
        ("job", "1", "in_progress", "webhook"),
    ]


@pytest.mark.parametrize(
    ("repository", "runner_id", "state"),
    [
        ("acme/widgets", 7, "busy"),
        ("acme/widgets", None, "busy"),
        ("acme/widgets", 8, "listening"),
        ("evil/repo", 7, "listening"),
        ("evil/repo", None, "listening"),
    ],
)
def test_a_job_makes_a_runner_busy_only_if_scope_and_runner_id_match(
    repository: str, runner_id: int | None, state: str
) -> None:
    """Anyone may register a runner with a name that they read in a log."""
    world = World()
    runner = world.ready()
    world.observe(1, IN_PROGRESS, repository=repository, runner_name=runner, runner_id=runner_id)
    assert world.state.runners[runner].state == state


@pytest.mark.case(
    "GitHub fails a job that was queued for a day: the controller reads the job before it "
    "launches for it",
    topic="GitHub's events",
    source="GitHub: Actions limits",
)
@pytest.mark.parametrize(("age", "asked"), [(86_400.0, False), (86_401.0, True)])
def test_a_job_queued_for_more_than_a_day_is_read_before_a_launch(age: float, asked: bool) -> None:
    world = World()
    world.observe(1, JobState.QUEUED, queued_at=START - age)
    assert world.job(1).disputed is asked
    assert (1 in world.state.reads) is asked


OPEN = [(QUEUED, DAY), (IN_PROGRESS, 5 * DAY + 3600.0), (WAITING, 35 * DAY)]


@pytest.mark.case(
    "a job is in progress or waiting, and no webhook reports its end: it counts as ended after 5 "
    "or 35 days",
    topic="GitHub's events",
    source="GitHub: Actions limits",
)
@pytest.mark.parametrize(("state", "limit"), OPEN)
@pytest.mark.parametrize("labels", [("gpu",), ("unserved",)])
def test_a_job_whose_end_is_never_reported_is_completed_at_githubs_time_limit(
    state: JobState, limit: float, labels: tuple[str, ...]
) -> None:
    world = World()
    world.observe(1, state, labels, runner_name="x1" if state is IN_PROGRESS else None)
    world.after(limit / 2)
    world.restart(limit / 2 - 1.0)
    world.after(0.0)
    assert world.job(1).state is state
    world.ledger.take_changes()
    world.after(1.0)
    job = world.job(1)
    assert (job.state, job.conclusion, job.completed_at) == (COMPLETED, "stale", world.now)
    (row,) = world.ledger.take_changes().history
    assert row.detail == f"{state} for longer than GitHub allows"
    assert (world.state.queues, world.state.reads) == ({}, {})
    assert not +world.state.in_progress


@pytest.mark.case(
    "a job is still queued a day after its last `queued`",
    topic="GitHub's events",
    source="GitHub: Actions limits",
)
def test_a_job_expires_after_a_day_in_the_queue_although_it_was_read() -> None:
    world = World()
    world.queue(1, 2)
    world.now += 3600.0
    world.observe(1, QUEUED, read=True)
    world.observe(2, WAITING, read=True)
    world.now += 3600.0
    world.observe(2, QUEUED, read=True)
    world.after(DAY - 7200.0)
    assert [world.job(n).state for n in (1, 2)] == [COMPLETED, QUEUED]
    world.after(7200.0)
    assert world.job(2).state is COMPLETED


def test_a_late_event_from_github_is_accepted() -> None:
    world = World()
    world.queue(1)
    world.after(DAY)
    world.observe(1, IN_PROGRESS, runner_name="x1")
    assert (world.job(1).state, world.job(1).runner_name) == (COMPLETED, "x1")


@pytest.mark.case(
    "a job starts just when its day in the queue is over",
    topic="EC2's machines",
    source="GitHub: Actions limits",
)
def test_a_job_that_starts_after_it_expired_keeps_its_runner() -> None:
    world = World()
    world.queue(1)
    runner = world.ready()
    world.after(DAY + 1.0)
    assert world.job(1).conclusion == ABANDONED
    world.starts(1, runner)
    assert world.runner(runner).state is RunnerState.BUSY
    world.completes(1, runner_name=runner)
    assert world.runner(runner).state is RunnerState.DONE
