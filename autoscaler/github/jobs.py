"""A workflow job as GitHub writes it, in webhooks and in REST answers, turned into a fact.

It decides which of GitHub's fields are to be believed in which state. It never decides what a
fact means for the fleet, and it does no I/O.

Fields and oddities: octokit/webhooks `workflow_job` schemas; docs.github.com "workflow jobs".
"""

import re
from dataclasses import dataclass
from typing import Annotated, Protocol

from pydantic import AfterValidator, Field, StringConstraints

from autoscaler.github.received import Received
from autoscaler.github.timestamps import instant_of
from autoscaler.model.events import JobObserved
from autoscaler.model.identifiers import Instant, JobId, RunnerName
from autoscaler.model.jobs import JobState

MAX_TEXT = 256
MAX_LABELS = 100

_Count = Annotated[int, Field(ge=0, lt=2**63)]
# Control characters are refused: a NUL in a text column would fail a whole batch in PostgreSQL.
_Word = Annotated[str, StringConstraints(max_length=MAX_TEXT, pattern=r"^[^\x00-\x1f\x7f]*$")]
_Timestamp = Annotated[str, StringConstraints(max_length=40)]

_REPOSITORY = re.compile(r"[A-Za-z0-9_-]{1,100}/(?!\.{1,2}$)[A-Za-z0-9_.-]{1,100}", re.ASCII)


def repository_name(text: str) -> str:
    """`owner/name`, as given, if it can stand in a URL's path. Raises ValueError otherwise."""
    if _REPOSITORY.fullmatch(text) is None:
        raise ValueError("not owner/name")
    return text


RepositoryName = Annotated[str, AfterValidator(repository_name)]

JOB_STATES = {
    "queued": JobState.QUEUED,
    "waiting": JobState.WAITING,
    # Held back by a concurrency group, or not yet looked at: nothing for a runner to take.
    "pending": JobState.WAITING,
    "requested": JobState.WAITING,
    "in_progress": JobState.IN_PROGRESS,
    "completed": JobState.COMPLETED,
}
"""GitHub's words for a job in answers to questions."""

_STARTED = (JobState.IN_PROGRESS, JobState.COMPLETED)


class WorkflowJob(Received):
    """The fields of a job that matter here; all but three may be missing or null."""

    id: Annotated[int, Field(gt=0, lt=2**63)]
    labels: Annotated[list[_Word], Field(max_length=MAX_LABELS)]
    status: _Word | None = None
    name: str | None = None
    workflow_name: str | None = None
    run_id: _Count | None = None
    run_attempt: _Count | None = None
    runner_name: _Word | None = None
    runner_id: _Count | None = None
    conclusion: _Word | None = None
    created_at: _Timestamp | None = None
    started_at: _Timestamp | None = None
    completed_at: _Timestamp | None = None


@dataclass(frozen=True, slots=True)
class Sighting:
    """Where and when the controller learned of a job. `read` is for answers to a question of ours."""

    repository: str
    at: Instant
    read: bool


class JobFields(Protocol):
    """What a fact is made of; None where GitHub gave nothing."""

    @property
    def id(self) -> int:
        """The job's id."""

    @property
    def labels(self) -> list[str]:
        """As `runs-on` gives them."""

    @property
    def name(self) -> str | None:
        """As GitHub shows it."""

    @property
    def workflow_name(self) -> str | None:
        """As GitHub shows it."""

    @property
    def run_id(self) -> int | None:
        """Of the workflow run."""

    @property
    def run_attempt(self) -> int | None:
        """From 1 on."""

    @property
    def runner_name(self) -> str | None:
        """Empty for none."""

    @property
    def runner_id(self) -> int | None:
        """0 for none."""

    @property
    def conclusion(self) -> str | None:
        """Of a completed job."""

    @property
    def created_at(self) -> str | None:
        """ISO 8601."""

    @property
    def started_at(self) -> str | None:
        """ISO 8601."""

    @property
    def completed_at(self) -> str | None:
        """ISO 8601."""


def observe(job: JobFields, state: JobState, sighting: Sighting) -> JobObserved:
    """The fact that GitHub gave, in `state`. Raises ValueError on a timestamp that is none.

    - `queued_at` is `created_at`; where GitHub left that out `started_at`, which it sets on queued
      jobs too; else the moment of learning.
    - The runner and `started_at` count only once a job has started: GitHub sets `started_at` on
      queued jobs and its example of a queued one carries runner fields (github/docs PR 12083).
    - A completed job without a runner (skipped, cancelled in the queue) never started.
    """
    runner = job.runner_name if state in _STARTED and job.runner_name else None
    started = instant_of(job.started_at) if state in _STARTED else None
    if state is JobState.COMPLETED and runner is None:
        started = None
    done = state is JobState.COMPLETED
    return JobObserved(
        at=sighting.at,
        id=JobId(job.id),
        state=state,
        repository=sighting.repository,
        labels=tuple(job.labels),
        queued_at=instant_of(job.created_at) or instant_of(job.started_at) or sighting.at,
        name=_shown(job.name),
        workflow=_shown(job.workflow_name),
        run_id=job.run_id,
        run_attempt=job.run_attempt or 1,
        runner_name=RunnerName(runner) if runner else None,
        started_at=started,
        completed_at=instant_of(job.completed_at) if done else None,
        conclusion=job.conclusion if done else None,
        read=sighting.read,
        runner_id=(job.runner_id or None) if runner else None,
    )


def _shown(text: str | None) -> str:
    # For people only, so cut and cleaned rather than refused: a long matrix name loses no job.
    shown = (text or "")[:MAX_TEXT]
    return shown if shown.isprintable() else "".join(c if c.isprintable() else " " for c in shown)
