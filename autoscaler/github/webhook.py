"""Whether a webhook body is GitHub's, and what it says of a job. Pure.

It decides authenticity (HMAC-SHA256 only) and shape. It never decides what to answer, to keep
or to do: that is the server's and the controller's.
"""

import hashlib
import hmac
import re
from collections.abc import Sequence

from pydantic import Field, ValidationError

from autoscaler.github.jobs import RepositoryName, Sighting, WorkflowJob, observe
from autoscaler.github.received import Received
from autoscaler.model.events import JobObserved
from autoscaler.model.identifiers import Instant
from autoscaler.model.jobs import JobState

MAX_BODY = 1024 * 1024
"""Bytes. Real workflow_job bodies are 8 to 25 KB; GitHub's own cap for any event is 25 MB."""

_SIGNATURE = re.compile(r"sha256=([0-9a-f]{64})", re.ASCII)
_STATES = {state.value: state for state in JobState}


class MalformedPayloadError(ValueError):
    """A body that is no workflow_job event. Says where and what kind, never a value of it."""


class _Action(Received):
    action: str = Field(max_length=100)


class _Repository(Received):
    full_name: RepositoryName


class _WorkflowJobEvent(_Action):
    workflow_job: WorkflowJob
    repository: _Repository


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
        wanted = hmac.new(secret, body, hashlib.sha256).hexdigest().encode()
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
        event = _WorkflowJobEvent.model_validate_json(body)
    except ValidationError as error:
        if _action_of(body) not in _STATES:
            return None
        raise MalformedPayloadError(_where(error)) from None
    state = _STATES.get(event.action)
    if state is None:
        return None
    if state is JobState.QUEUED and event.workflow_job.status == JobState.WAITING:
        state = JobState.WAITING
    try:
        return observe(
            event.workflow_job, state, Sighting(event.repository.full_name, received_at, read=False)
        )
    except (ValueError, OverflowError):
        raise MalformedPayloadError("a timestamp of workflow_job: not ISO 8601") from None


def _action_of(body: bytes) -> str:
    try:
        return _Action.model_validate_json(body).action
    except ValidationError as error:
        raise MalformedPayloadError(_where(error)) from None


def _where(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    return f"{'.'.join(str(part) for part in first['loc']) or 'body'}: {first['type']}"
