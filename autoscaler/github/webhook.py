"""Whether a webhook body is GitHub's, and what it says of a job. Pure.

It decides authenticity (HMAC-SHA256 only) and shape. It never decides what to answer, to keep
or to do: that is the server's and the controller's.
"""

import hmac
import re
from collections.abc import Sequence
from typing import Annotated

import msgspec

from autoscaler.github.jobs import MAX_LABELS, MAX_TEXT, Sighting, observe, repository_name
from autoscaler.model.events import JobObserved
from autoscaler.model.identifiers import Instant
from autoscaler.model.jobs import JobState

MAX_BODY = 1024 * 1024
"""Bytes. Real workflow_job bodies are 8 to 25 KB; GitHub's own cap for any event is 25 MB."""

_SIGNATURE = re.compile(r"sha256=([0-9a-f]{64})", re.ASCII)
_LARGEST = 2**63 - 1
_STATES = {state.value: state for state in JobState}


class MalformedPayloadError(ValueError):
    """A body that is no workflow_job event. Says where and what kind, never a value of it."""


_ShortText = Annotated[str, msgspec.Meta(max_length=MAX_TEXT, pattern=r"\A[^\x00-\x1f\x7f]*\Z")]
_Count = Annotated[int, msgspec.Meta(ge=0)]
_Time = Annotated[str, msgspec.Meta(max_length=40)]


class _Action(msgspec.Struct):
    action: Annotated[str, msgspec.Meta(max_length=100)]


class _Repository(msgspec.Struct):
    full_name: str


class _Job(msgspec.Struct):
    """`jobs.WorkflowJob`, read in a tenth of its time: the rest of a body is skipped, not built."""

    id: Annotated[int, msgspec.Meta(gt=0)]
    labels: Annotated[list[_ShortText], msgspec.Meta(max_length=MAX_LABELS)]
    status: _ShortText | None = None
    name: str | None = None
    workflow_name: str | None = None
    run_id: _Count | None = None
    run_attempt: _Count | None = None
    runner_name: _ShortText | None = None
    runner_id: _Count | None = None
    conclusion: _ShortText | None = None
    created_at: _Time | None = None
    started_at: _Time | None = None
    completed_at: _Time | None = None


class _Event(_Action):
    workflow_job: _Job
    repository: _Repository


_EVENT = msgspec.json.Decoder(_Event)
_ACTION = msgspec.json.Decoder(_Action)


def verify_signature(body: bytes, header: str | None, secrets: Sequence[bytes]) -> bool:
    """Whether `X-Hub-Signature-256` proves that one of the live secrets signed this body.

    Takes the same time whichever secret fits. SHA-1, other spellings and non-ASCII text are
    refused, and an empty secret proves nothing.
    """
    match = _SIGNATURE.fullmatch(header or "")
    if match is None:
        return False
    given = match[1].encode()
    proved = False
    for secret in secrets:
        wanted = hmac.digest(secret, body, "sha256").hex().encode()
        proved |= hmac.compare_digest(given, wanted) and bool(secret)
    return proved


def parse_workflow_job(body: bytes, received_at: Instant) -> JobObserved | None:
    """The fact in a workflow_job body; None for an action that is not known here.

    The action decides the state, not `status`, which may lag behind it (`in_progress` with
    `status=queued`) or already be of another moment. The one exception: `queued` with
    `status=waiting` is a job that a protection rule holds back, hence waiting.
    Raises MalformedPayloadError.
    """
    if len(body) > MAX_BODY:
        raise MalformedPayloadError(f"body over {MAX_BODY} bytes")
    try:
        event = _EVENT.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if _action_of(body) not in _STATES:
            return None
        raise MalformedPayloadError(_where(error)) from None
    state = _STATES.get(event.action)
    if state is None:
        return None
    if state is JobState.QUEUED and event.workflow_job.status == JobState.WAITING:
        state = JobState.WAITING
    try:
        repository = repository_name(event.repository.full_name)
    except ValueError:
        raise MalformedPayloadError("repository.full_name: not owner/name") from None
    if max(event.workflow_job.id, *_numbers(event.workflow_job)) > _LARGEST:
        raise MalformedPayloadError("a number of workflow_job: over 64 bits")
    try:
        return observe(event.workflow_job, state, Sighting(repository, received_at, read=False))
    except (ValueError, OverflowError):
        raise MalformedPayloadError("a timestamp of workflow_job: not ISO 8601") from None


def _numbers(job: _Job) -> tuple[int, int, int]:
    return job.run_id or 0, job.run_attempt or 0, job.runner_id or 0


def _action_of(body: bytes) -> str:
    try:
        return _ACTION.decode(body).action
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedPayloadError(_where(error)) from None


def _where(error: Exception) -> str:
    """Return what is wrong and where. msgspec names types, places and bounds, and no value."""
    if isinstance(error, RecursionError):
        return "body: nested too deeply"
    return str(error) if isinstance(error, msgspec.DecodeError) else "body: not UTF-8"
