"""Verifies the signature of a webhook body (HMAC-SHA256), and parses its job. Pure."""

import hmac
import json
import re
from collections.abc import Sequence
from typing import Annotated

import msgspec

from autoscaler.github.jobs import Source, WorkflowJob, observe, read_job, repository_name
from autoscaler.model.events import JobObserved
from autoscaler.model.identifiers import Instant
from autoscaler.model.jobs.job import JobState

MAX_BODY = 1024 * 1024
"""Bytes. Real workflow_job bodies have 8 to 25 KB; GitHub's limit for any event is 25 MB."""

_SIGNATURE = re.compile(r"sha256=([0-9a-f]{64})", re.ASCII)
_STATES = {state.value: state for state in JobState}


class MalformedPayloadError(ValueError):
    """A body that is not a workflow_job event. The text has the place and kind, and no values."""


class _Repository(msgspec.Struct):
    full_name: str


class _Event(msgspec.Struct):
    action: Annotated[str, msgspec.Meta(max_length=100)]
    workflow_job: WorkflowJob
    repository: _Repository


_EVENT = msgspec.json.Decoder(_Event)


def verify_signature(body: bytes, header: str | None, secrets: Sequence[bytes]) -> bool:
    """Return whether `X-Hub-Signature-256` is the body's signature with one of the secrets.

    Takes the same time for every secret. Refuses SHA-1, other formats, non-ASCII text and empty
    secrets.
    """
    match = _SIGNATURE.fullmatch(header or "")
    if match is None:
        return False
    given = match[1].encode()
    valid = False
    for secret in secrets:
        expected = hmac.digest(secret, body, "sha256").hex().encode()
        valid |= hmac.compare_digest(given, expected) and bool(secret)
    return valid


def parse_workflow_job(body: bytes, received_at: Instant) -> JobObserved | None:
    """Return the job of a workflow_job body, or None for an unknown action.

    The state comes from the action, because `status` may be older or newer (`in_progress` with
    `status=queued`). The one exception is `queued` with `status=waiting`: a protection rule holds the
    job back, so its state is waiting. Raises MalformedPayloadError.
    """
    if len(body) > MAX_BODY:
        raise MalformedPayloadError(f"body: more than {MAX_BODY} bytes")
    try:
        event = _EVENT.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        found = _read_odd(body, _where(error))
        if found is None:
            return None
        event = found
    state = _STATES.get(event.action)
    if state is None:
        return None
    if state is JobState.QUEUED and event.workflow_job.status == JobState.WAITING:
        state = JobState.WAITING
    try:
        repository = repository_name(event.repository.full_name)
    except ValueError:
        raise MalformedPayloadError(
            f"repository.full_name: not owner/name (job {event.workflow_job.id})"
        ) from None
    return observe(event.workflow_job, state, Source(repository, received_at, read=False))


def _read_odd(body: bytes, where: str) -> _Event | None:
    """Return the event of a body with odd fields, or None for an unknown action.

    Raises MalformedPayloadError, with `where` and the repository if there is one, if it identifies no job.
    """
    try:
        data = json.loads(body.decode())
        action = msgspec.convert(data["action"], str)
        if action not in _STATES:
            return None
        repository = _Repository(repository_name(data["repository"]["full_name"]))
    except (ValueError, TypeError, KeyError, RecursionError):
        raise MalformedPayloadError(where) from None
    try:
        return _Event(action, read_job(data["workflow_job"]), repository)
    except (ValueError, KeyError):
        raise MalformedPayloadError(f"{where} (repository {repository.full_name})") from None


def _where(error: Exception) -> str:
    """Return the error and its place. msgspec's errors contain no values."""
    if isinstance(error, RecursionError):
        return "body: nested too deeply"
    return str(error) if isinstance(error, msgspec.DecodeError) else "body: not UTF-8"
