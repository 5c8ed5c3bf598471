"""What GitHub sends in the course of a job, read from the wire into the real ledger.

Each story is a list of signed bodies' contents; `wanted` counts the machines that would be launched.
"""

import json
from dataclasses import replace
from datetime import UTC, datetime
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.github.jobs import Source, observe, read_job
from autoscaler.github.webhook import parse_workflow_job
from autoscaler.model.jobs.job import JobState
from autoscaler.model.jobs.runners import RunnerState
from autoscaler.model.plan import Launch, ReadJob
from tests.ledger.builders import World
from tests.planner.fleets import catalogue, sku

STEADY = settings(derandomize=True, deadline=None)
NOON = datetime(2027, 1, 15, 12, tzinfo=UTC).timestamp()

QUEUED: dict[str, Any] = {
    "id": 1,
    "run_id": 940463255,
    "run_attempt": 1,
    "name": "test (3.12)",
    "workflow_name": "trunk",
    "labels": ["gpu"],
    "status": "queued",
    "conclusion": None,
    "created_at": "2027-01-15T11:59:30Z",
    "started_at": "2027-01-15T11:59:30Z",
    "completed_at": None,
    "runner_id": None,
    "runner_name": None,
    "steps": [],
}
STARTED = QUEUED | {
    "status": "in_progress",
    "started_at": "2027-01-15T12:01:00Z",
    "runner_id": 7,
    "runner_name": "another",
}
DONE = STARTED | {
    "status": "completed",
    "conclusion": "success",
    "completed_at": "2027-01-15T12:05:00Z",
}
SKIPPED = QUEUED | {
    "status": "completed",
    "conclusion": "skipped",
    "labels": [],
    "completed_at": "2027-01-15T11:59:30Z",
}


class Story:
    """A ledger that gets webhook events, one each second."""

    def __init__(self, world: World | None = None) -> None:
        self.world = world or World(now=NOON)

    def receive(self, action: str, job: dict[str, Any], **changes: Any) -> "Story":
        """One delivery. A field that is "missing" is omitted."""
        fields = {key: value for key, value in (job | changes).items() if value != "missing"}
        body = {
            "action": action,
            "workflow_job": fields,
            "repository": {"full_name": "acme/widgets"},
        }
        self.world.now += 1
        event = parse_workflow_job(json.dumps(body).encode(), self.world.now)
        assert event is not None
        self.world.ledger.apply(event)
        return self

    def ask(self, status: JobState) -> "Story":
        """Apply GitHub's answer that job 1 is in this state."""
        self.world.now += 1
        job = read_job(QUEUED | {"status": status.value})
        sighting = Source("acme/widgets", self.world.now, read=True)
        self.world.ledger.apply(observe(job, status, sighting))
        return self

    @property
    def wanted(self) -> int:
        """Return how many machines the planner would launch now."""
        return sum(launch.count for launch in self.world.intents(Launch))

    @property
    def questions(self) -> int:
        """Return how many jobs the planner would read now."""
        return len(self.world.intents(ReadJob))

    @property
    def state(self) -> JobState:
        """The state of job 1."""
        return self.world.job(1).state


@pytest.mark.case(
    "`queued`, `in_progress`, `completed`: one machine from `queued` until `in_progress`",
    topic="GitHub's events",
    source="GitHub: workflow_job events",
)
def test_a_job_needs_one_machine_from_queued_to_in_progress() -> None:
    story = Story().receive("queued", QUEUED)
    assert story.wanted == 1
    assert story.receive("in_progress", STARTED).wanted == 0
    assert story.receive("completed", DONE).wanted == 0
    job = story.world.job(1)
    assert (job.queued_at, job.started_at, job.conclusion) == (NOON - 30, NOON + 60, "success")


@pytest.mark.case(
    "environments send `queued`, `waiting`, `queued`",
    topic="GitHub's events",
    source="cdk-github-runners#416",
)
def test_a_protected_environments_job_needs_no_machine_until_it_was_read() -> None:
    story = Story().receive("queued", QUEUED)
    story.receive("waiting", QUEUED, status="waiting")
    assert (story.wanted, story.questions) == (0, 1)
    story.ask(JobState.WAITING)
    assert (story.wanted, story.questions) == (0, 0)
    story.receive("queued", QUEUED)  # approved
    assert (story.wanted, story.questions) == (0, 1)
    assert story.ask(JobState.QUEUED).wanted == 1
    story.receive("in_progress", STARTED)
    assert (story.wanted, story.state) == (0, JobState.IN_PROGRESS)


@pytest.mark.case(
    "the state of an approval settles only seconds later",
    topic="GitHub's events",
    source="runs-on#429",
)
@pytest.mark.parametrize(
    "order", sorted(set(permutations(["queued", "waiting", "queued", "waiting"])))
)
def test_an_approved_job_is_read_whatever_the_order_of_its_deliveries(order: list[str]) -> None:
    story = Story()
    for action in order:
        story.receive(action, QUEUED, status=action)
    assert (story.wanted, story.questions) == (0, 1)
    assert story.ask(JobState.QUEUED).wanted == 1


@pytest.mark.case(
    "`waiting` overtakes `queued`: the job is not stuck",
    topic="GitHub's events",
    source="runs-on#539",
)
def test_an_approved_job_with_reordered_deliveries_becomes_demand_after_a_read() -> None:
    story = Story().receive("queued", QUEUED).receive("waiting", QUEUED, status="waiting")
    story.ask(JobState.QUEUED)  # `waiting` arrived late: the job is approved
    assert (story.wanted, story.state) == (1, JobState.QUEUED)


@pytest.mark.case(
    "`queued` with `status: waiting`",
    topic="GitHub's events",
    source="octokit/webhooks schemas",
)
def test_queued_with_status_waiting_is_a_job_that_waits() -> None:
    story = Story().receive("queued", QUEUED, status="waiting")
    assert (story.state, story.wanted, story.questions) == (JobState.WAITING, 0, 0)


@pytest.mark.case(
    "`waiting` is followed by `in_progress` without `queued`",
    topic="GitHub's events",
    source="GitHub: run statuses",
)
def test_a_waiting_job_can_start_without_a_queued_event() -> None:
    story = Story().receive("waiting", QUEUED, status="waiting").receive("in_progress", STARTED)
    assert (story.state, story.wanted, story.questions) == (JobState.IN_PROGRESS, 0, 0)


@pytest.mark.case(
    "`in_progress` with `status: queued`",
    topic="GitHub's events",
    source="octokit/webhooks schemas",
)
def test_in_progress_with_status_queued_has_started_on_its_runner() -> None:
    story = Story()
    runner = story.world.ready()
    number = story.world.runner(runner).github_id
    story.receive("queued", QUEUED)
    story.receive("in_progress", STARTED, status="queued", runner_name=runner, runner_id=number)
    assert story.state is JobState.IN_PROGRESS
    assert (story.world.runner(runner).state, story.world.runner(runner).job) == (
        RunnerState.BUSY,
        1,
    )


@pytest.mark.case(
    "`queued` with the name and id of a runner",
    topic="GitHub's events",
    source="github/docs#12083",
)
def test_runner_fields_of_a_queued_job_are_ignored() -> None:
    story = Story()
    runner = story.world.ready()
    story.receive("queued", QUEUED, runner_name=runner, runner_id=7)
    assert story.world.runner(runner).state is RunnerState.LISTENING
    assert story.world.job(1).started_at is None


@pytest.mark.case(
    "`completed` first, for a job that was skipped",
    topic="GitHub's events",
    source="ARC#836",
)
def test_a_skipped_job_needs_no_machine() -> None:
    story = Story().receive("completed", SKIPPED)
    assert (story.state, story.wanted) == (JobState.COMPLETED, 0)
    job = story.world.job(1)
    assert (job.labels, job.conclusion, job.started_at) == ((), "skipped", None)


@pytest.mark.case(
    "`queued` after a skipped job's end",
    topic="GitHub's events",
    source="ARC#836",
)
def test_a_late_queued_event_of_a_skipped_job_needs_no_machine() -> None:
    story = Story().receive("completed", SKIPPED).receive("queued", QUEUED)
    assert (story.state, story.wanted, story.questions) == (JobState.COMPLETED, 0, 0)
    assert story.world.job(1).labels == ("gpu",)


@pytest.mark.case(
    "cancelled before its start: no steps, no runner",
    topic="GitHub's events",
    source="ARC#2520",
)
def test_a_job_cancelled_while_queued_needs_no_machine() -> None:
    story = Story().receive("queued", QUEUED)
    story.receive("completed", DONE, conclusion="cancelled", runner_name="", runner_id=0, steps=[])
    assert (story.state, story.wanted) == (JobState.COMPLETED, 0)
    assert story.world.job(1).started_at is None


@pytest.mark.case(
    "`completed` with empty labels",
    topic="GitHub's events",
    source="ARC#1370",
)
def test_completed_with_empty_labels_ends_the_job_it_names() -> None:
    story = Story().receive("queued", QUEUED).receive("completed", DONE, labels=[])
    assert (story.state, story.wanted) == (JobState.COMPLETED, 0)
    assert story.world.job(1).labels == ("gpu",)


@pytest.mark.case(
    "a re-run sends `completed` again for jobs of the earlier attempt",
    topic="GitHub's events",
    source="ARC#4315; ARC#4594",
)
def test_repeated_completed_events_of_old_attempts_remove_no_new_job() -> None:
    story = Story()
    for old in range(1, 6):
        story.receive("queued", QUEUED, id=old).receive("completed", DONE, id=old)
    story.receive("queued", QUEUED, id=10, run_attempt=2)
    for old in range(1, 6):
        story.receive("completed", DONE, id=old, run_attempt=2)
    assert story.wanted == 1
    assert story.world.job(10).state is JobState.QUEUED


@pytest.mark.case(
    "`completed` for jobs that the controller does not know",
    topic="GitHub's events",
    source="ARC#4315",
)
def test_completed_events_of_unknown_jobs_remove_no_other_job() -> None:
    story = Story().receive("queued", QUEUED)
    for old in range(100, 105):
        story.receive("completed", DONE, id=old)
    assert story.wanted == 1


@pytest.mark.case(
    "`queued` never arrives: `in_progress` makes the job known at the latest",
    topic="GitHub's events",
    source="ARC#2788; ubicloud#1042",
)
@pytest.mark.case(
    "a re-run without `queued`",
    topic="GitHub's events",
    source="kent8192/reinhardt-web#4253",
)
def test_a_rerun_job_without_a_queued_event_is_known_when_it_starts() -> None:
    story = Story().receive("in_progress", STARTED, run_attempt=2).receive("completed", DONE)
    assert (story.state, story.wanted) == (JobState.COMPLETED, 0)
    assert story.world.job(1).run_attempt == 2


@pytest.mark.case(
    "`queued` twice",
    topic="GitHub's events",
    source="cdk-github-runners#416",
)
def test_two_queued_events_are_one_job() -> None:
    assert Story().receive("queued", QUEUED).receive("queued", QUEUED).wanted == 1


@pytest.mark.case(
    "`created_at`, `run_attempt` or `workflow_name` missing",
    topic="GitHub's events",
    source="@octokit/webhooks-examples",
)
@pytest.mark.parametrize("field", ["created_at", "run_attempt", "run_id", "workflow_name", "name"])
def test_a_body_without_an_optional_field_is_still_a_job(field: str) -> None:
    story = Story().receive("queued", QUEUED, **{field: "missing"})
    assert (story.wanted, story.questions) == (1, 0)
    story.receive("in_progress", STARTED, **{field: "missing"})
    story.receive("completed", DONE, **{field: "missing"})
    assert (story.state, story.wanted) == (JobState.COMPLETED, 0)


@pytest.mark.case(
    "`created_at`, `run_attempt` or `workflow_name` missing",
    topic="GitHub's events",
    source="@octokit/webhooks-examples",
)
def test_a_body_without_created_at_uses_started_at() -> None:
    story = Story().receive(
        "queued", QUEUED, created_at="missing", started_at="2027-01-13T12:00:00Z"
    )
    assert story.world.job(1).queued_at == NOON - 2 * 86_400
    assert (story.wanted, story.questions) == (0, 1), "redelivered: GitHub is asked first"


@pytest.mark.case(
    "a conclusion that no schema lists",
    topic="GitHub's events",
    source="octokit/webhooks common schemas",
)
@pytest.mark.parametrize("conclusion", ["startup_failure", "made_up_tomorrow", None])
def test_an_unknown_conclusion_completes_a_job(conclusion: str | None) -> None:
    story = Story().receive("queued", QUEUED).receive("completed", DONE, conclusion=conclusion)
    assert (story.state, story.wanted) == (JobState.COMPLETED, 0)
    assert story.world.job(1).conclusion == conclusion


@pytest.mark.case(
    "`runs-on: {group: x}` sends no labels",
    topic="GitHub's events",
    source="GAR#3643; GAR#3548",
)
def test_a_job_with_only_a_runner_group_goes_to_a_sku_without_labels() -> None:
    assert Story().receive("queued", QUEUED, labels=[]).wanted == 0
    willing = catalogue(replace(sku(), unlabelled=True))
    story = Story(World(willing, NOON)).receive("queued", QUEUED, labels=[])
    assert story.wanted == 1


@pytest.mark.case(
    "labels are compared case-insensitively",
    topic="GitHub's events",
    source="GitHub: labels",
)
def test_labels_are_compared_without_regard_to_case() -> None:
    assert Story().receive("queued", QUEUED, labels=["GPU", "Self-Hosted", "LINUX"]).wanted == 1


BODIES: list[tuple[str, dict[str, Any]]] = [
    ("waiting", QUEUED | {"status": "waiting"}),
    ("queued", QUEUED),
    ("in_progress", STARTED | {"status": "queued"}),
    ("completed", DONE | {"labels": []}),
]


@pytest.mark.case(
    "deliveries arrive twice, late and out of order",
    topic="GitHub's events",
    source="GitHub: using webhooks",
)
@STEADY
@given(
    st.lists(st.integers(0, 3), max_size=4).flatmap(
        lambda again: st.permutations([*range(4), *again])
    )
)
def test_reordered_and_repeated_bodies_give_the_same_job(order: list[int]) -> None:
    story, straight = Story(), Story()
    for number in order:
        story.receive(*BODIES[number])
    for body in BODIES:
        straight.receive(*body)
    reported, expected = story.world.job(1), straight.world.job(1)
    assert replace(reported, updated_at=0.0) == replace(expected, updated_at=0.0)
    assert (story.wanted, story.questions) == (0, 0)
