"""The bodies of the machines' requests (docs/bootstrap.md, version 1), and the words of their refusals.

Fields are bounded. Unknown keys are ignored, so that a newer agent can talk to this controller. An answer never
contains the text of an error, which may contain what the machine sent.
"""

import base64
import re
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, ValidationError

from autoscaler.controller.ports.bootstrap import BootstrapRefusedError, NotKnownYetError
from autoscaler.controller.ports.store import StoreError
from autoscaler.model.identifiers import Seconds
from autoscaler.model.machines.machine import ExitReason
from autoscaler.server.bodies import BodyRefusedError

_Word = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}\z")]

_VERSION = re.compile(r"[0-9][0-9A-Za-z.+-]{0,31}")

MAX_WAIT = 50.0
"""Longest wait of a poll, in seconds."""

MAX_DETAIL = 1_000
"""Maximum number of characters of a machine's free text. The rest is cut off."""


def _decoded(proof: object) -> bytes:
    """Return the decoded proof. Allows line breaks, which EC2's metadata service writes.

    Raises: ValueError.
    """
    if not isinstance(proof, str) or not proof.isascii():
        raise ValueError("proof is not base64")
    return base64.b64decode("".join(proof.split()), validate=True)


class Request(BaseModel):
    """A body without keys that this version knows."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")


class AttestationRequest(Request):
    """The proof of the machine's identity, and the nonce of its later requests."""

    protocol: Annotated[int, Field(ge=0, le=1_000_000)]
    provider: _Word
    proof: Annotated[bytes, PlainValidator(_decoded)]
    nonce: Annotated[str, Field(pattern=r"^[0-9a-fA-F]{64}\z")]
    agent: Annotated[str, Field(max_length=64)]


class StageRequest(Request):
    """The stage that the boot has reached."""

    stage: _Word


class HealthCheck(Request):
    """The result of one health check."""

    name: _Word
    ok: bool
    detail: str = ""


class HealthChecksRequest(Request):
    """The results of the machine's health checks."""

    passed: bool
    checks: Annotated[list[HealthCheck], Field(max_length=64)] = Field(default_factory=list)

    def summary(self) -> str:
        """Return the failed checks with their details or, if none failed, the names of all checks."""
        failed = [f"{check.name}: {check.detail}" for check in self.checks if not check.ok]
        return "; ".join(failed) or ", ".join(check.name for check in self.checks)

    def runner_version(self) -> str:
        """Return the version of actions/runner from the check `runner_version`, or an empty string."""
        found = (one.detail for one in self.checks if one.ok and one.name == "runner_version")
        version = next(found, "")
        return version if _VERSION.fullmatch(version) else ""


class PollRequest(Request):
    """How long to wait for an assignment, in seconds."""

    wait: Annotated[float, Field(ge=0, le=MAX_WAIT, allow_inf_nan=False)]


class AcknowledgeRequest(Request):
    """The name of the runner whose assignment the machine received."""

    runner: _Word


class ExitRequest(Request):
    """How the machine's runner ended."""

    detail: str = ""
    reason: str = ""

    def known_reason(self) -> ExitReason:
        """Return the reason, or `unknown` for an unknown word."""
        words = {reason.value: reason for reason in ExitReason}
        return words.get(self.reason, ExitReason.UNKNOWN)


Step = Literal[
    "agent",
    "attest",
    "stage",
    "health-checks",
    "poll",
    "acknowledge",
    "heartbeat",
    "may-release",
    "release",
    "exit",
]
"""Values of the metrics' label `step`."""


def readable(text: str) -> str:
    """Return a machine's text on one line, without control characters, cut to `MAX_DETAIL`."""
    kept = "".join(char if char.isprintable() else " " for char in text[:MAX_DETAIL])
    return kept.strip()


REFUSALS = (
    BootstrapRefusedError,
    NotKnownYetError,
    StoreError,
    BodyRefusedError,
    ValidationError,
)
"""The errors with an answer of their own. Any other error is a bug: 500."""

_TOO_MANY_REQUESTS = 429
_RETRY_AFTER: Seconds = 5.0


@dataclass(frozen=True, slots=True)
class Refusal:
    """A status, its word, and the seconds after which a retry can help, if it can."""

    status: int
    word: str
    retry_after: Seconds | None = None


def refusal_of(error: Exception) -> Refusal:
    """Return the answer to an error of REFUSALS.

    Raises: TypeError for another error.
    """
    match error:
        case BootstrapRefusedError():
            again = _RETRY_AFTER if error.status == _TOO_MANY_REQUESTS else None
            return Refusal(error.status, error.reason, again)
        case NotKnownYetError():
            return Refusal(503, "not_known_yet", error.retry_after)
        case StoreError():
            return Refusal(503, "store_failed", _RETRY_AFTER)
        case BodyRefusedError(reason="busy"):
            return Refusal(503, "busy", _RETRY_AFTER)
        case BodyRefusedError():
            return Refusal(400, error.reason)
        case ValidationError():
            return Refusal(400, "malformed")
    raise TypeError(f"not a refusal: {type(error).__name__}")
