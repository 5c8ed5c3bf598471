"""Converts a workflow job from a webhook or a REST answer into a `JobObserved`. Pure.

Uses each of GitHub's fields only in the states in which it is reliable. Anyone can write `runs-on`, so an
odd field does not discard a job: what cannot be read counts as missing, and long or invisible text is changed.

Fields: octokit/webhooks `workflow_job` schemas; docs.github.com "workflow jobs".
"""

import re
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from pydantic import AfterValidator

from autoscaler.github.requests.received import instant_of
from autoscaler.model.events import JobObserved
from autoscaler.model.identifiers import Instant, JobId, RunnerName
from autoscaler.model.jobs.job import JobState

MAX_TEXT = 256
MAX_LABELS = 100

_LARGEST = 2**63 - 1
_Count = Annotated[int, msgspec.Meta(ge=0, le=_LARGEST)]
# PostgreSQL refuses a whole batch with a NUL in a text column, and every database refuses lone surrogates.
_Word = Annotated[
    str, msgspec.Meta(max_length=MAX_TEXT, pattern=r"\A[^\x00-\x1f\x7f\ud800-\udfff]*\Z")
]
_INVISIBLE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_PICTURES = {"\x7f": "\u2421", **{chr(code): chr(0x2400 + code) for code in range(0x20)}}
_Timestamp = Annotated[str, msgspec.Meta(max_length=40)]

_REPOSITORY = re.compile(r"[A-Za-z0-9_-]{1,100}/(?!\.{1,2}$)[A-Za-z0-9_.-]{1,100}", re.ASCII)


def repository_name(text: str) -> str:
    """Return `text` if it is `owner/name` and fits into a URL's path. Raises ValueError otherwise."""
    if _REPOSITORY.fullmatch(text) is None:
        raise ValueError("not owner/name")
    return text


RepositoryName = Annotated[str, AfterValidator(repository_name)]

JOB_STATES = {
    "queued": JobState.QUEUED,
    "waiting": JobState.WAITING,
    # A concurrency group holds it back, or GitHub has not processed it: no runner can take it.
    "pending": JobState.WAITING,
    "requested": JobState.WAITING,
    "in_progress": JobState.IN_PROGRESS,
    "completed": JobState.COMPLETED,
}
"""The states of jobs by their `status` in REST answers."""

_STARTED = (JobState.IN_PROGRESS, JobState.COMPLETED)


class WorkflowJob(msgspec.Struct, frozen=True):
    """The fields of a job that are used; all but `id` and `labels` may be missing or null.

    msgspec skips all other fields, and takes a tenth of pydantic's time: webhooks come in floods.
    """

    id: Annotated[int, msgspec.Meta(gt=0, le=_LARGEST)]
    labels: Annotated[list[_Word], msgspec.Meta(max_length=MAX_LABELS)]
    status: _Word | None = None
    name: str | None = None
    workflow_name: str | None = None
    run_id: _Count | None = None
    run_attempt: _Count | None = None
    runner_name: _Word | None = None
    runner_id: _Count | None = None
    conclusion: _Word | None = None
    head_sha: str | None = None
    head_branch: str | None = None
    created_at: _Timestamp | None = None
    started_at: _Timestamp | None = None
    completed_at: _Timestamp | None = None


def read_job(data: object) -> WorkflowJob:
    """Return the job in JSON data. Raises ValueError, without any value, if it has no usable id."""
    try:
        return msgspec.convert(data, WorkflowJob)
    except msgspec.ValidationError:
        if not isinstance(data, dict):
            raise
        return msgspec.convert(_readable(data), WorkflowJob)


def _readable(data: dict[Any, Any]) -> dict[str, object]:
    """Return the fields of a job in a form that can be read. No SKU has a label that was changed."""
    found: dict[str, object] = {"id": data.get("id"), "labels": _labels(data.get("labels"))}
    for field in msgspec.structs.fields(WorkflowJob):
        if field.name not in found:
            value = data.get(field.name)
            value = _visible(value) if isinstance(value, str) else value
            try:
                found[field.name] = msgspec.convert(value, field.type)
            except msgspec.ValidationError:
                found[field.name] = None
    return found


def _labels(labels: object) -> list[str]:
    if not isinstance(labels, list):
        return []  # a later event of the job has them
    shown = [_visible(one) if isinstance(one, str) else "(no text)" for one in labels[:MAX_LABELS]]
    if len(labels) > MAX_LABELS:
        shown[-1] = f"(and {len(labels) - MAX_LABELS + 1} more)"
    return shown


def _visible(text: str) -> str:
    """Return the text with Unicode's pictures of control characters, cut to `MAX_TEXT` characters."""
    if len(text) > MAX_TEXT:
        text = text[: MAX_TEXT - 1] + "\u2026"
    return _INVISIBLE.sub(lambda found: _PICTURES.get(found[0], "\ufffd"), text)


@dataclass(frozen=True, slots=True)
class Source:
    """The repository of a job, and when the controller got its data. `read`: from a REST answer."""

    repository: str
    at: Instant
    read: bool


def observe(job: WorkflowJob, state: JobState, source: Source) -> JobObserved:
    """Return the job in `state`.

    - `queued_at` is `created_at`. If GitHub left it out, it is `started_at`, which GitHub also sets on
      queued jobs, or else the time when the controller got the data.
    - The runner and `started_at` count only for a started job: GitHub sets `started_at` on queued
      jobs, and its example of a queued job has a runner (github/docs PR 12083).
    - A completed job without a runner (skipped, or cancelled while queued) never started.
    """
    runner = job.runner_name if state in _STARTED and job.runner_name else None
    started = _instant(job.started_at) if state in _STARTED else None
    if state is JobState.COMPLETED and runner is None:
        started = None
    done = state is JobState.COMPLETED
    return JobObserved(
        at=source.at,
        id=JobId(job.id),
        state=state,
        repository=source.repository,
        labels=tuple(job.labels),
        queued_at=_instant(job.created_at) or _instant(job.started_at) or source.at,
        name=_shown(job.name),
        workflow=_shown(job.workflow_name),
        run_id=job.run_id,
        run_attempt=job.run_attempt or 1,
        runner_name=RunnerName(runner) if runner else None,
        started_at=started,
        completed_at=_instant(job.completed_at) if done else None,
        conclusion=job.conclusion if done else None,
        read=source.read,
        runner_id=(job.runner_id or None) if runner else None,
        head_sha=_shown(job.head_sha),
        head_branch=_shown(job.head_branch),
    )


def _instant(text: str | None) -> Instant | None:
    try:
        return instant_of(text)
    except (ValueError, OverflowError):
        return None


def _shown(text: str | None) -> str:
    # Only people read it. It is shortened, because refusing a long matrix name would lose the job.
    shown = (text or "")[:MAX_TEXT]
    return shown if shown.isprintable() else "".join(c if c.isprintable() else " " for c in shown)
