"""The shapes of what machines send (docs/bootstrap.md, version 1), each field bounded.

Keys that are not known are ignored, so that a newer agent is understood. What a shape means is
not decided here.
"""

import base64
import re
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainValidator

from autoscaler.model.machines import ExitReason

_Word = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}\z")]

_VERSION = re.compile(r"[0-9][0-9A-Za-z.+-]{0,31}")

MAX_WAIT = 50.0
"""The longest poll, in seconds."""

MAX_DETAIL = 1_000
"""Characters of a machine's own words that are passed on; the rest is cut off."""


def _decoded(proof: object) -> bytes:
    """Decode once; line breaks are allowed, as the metadata service has them. Raises ValueError."""
    if not isinstance(proof, str) or not proof.isascii():
        raise ValueError("proof is not base64")
    return base64.b64decode("".join(proof.split()), validate=True)


class Request(BaseModel):
    """A body of nothing but, perhaps, keys of a later version."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")


class AttestationRequest(Request):
    """Who I am, and the nonce that I shall be known by."""

    protocol: Annotated[int, Field(ge=0, le=1_000_000)]
    provider: _Word
    proof: Annotated[bytes, PlainValidator(_decoded)]
    nonce: Annotated[str, Field(pattern=r"^[0-9a-fA-F]{64}\z")]
    agent: Annotated[str, Field(max_length=64)]


class StageRequest(Request):
    """How far the boot has come."""

    stage: _Word


class HealthCheck(Request):
    """One of the machine's own checks."""

    name: _Word
    ok: bool
    detail: str = ""


class HealthChecksRequest(Request):
    """How the machine's own checks ended."""

    passed: bool
    checks: Annotated[list[HealthCheck], Field(max_length=64)] = Field(default_factory=list)

    def summary(self) -> str:
        """For people: the checks that failed with their details, else the names of all."""
        failed = [f"{check.name}: {check.detail}" for check in self.checks if not check.ok]
        return "; ".join(failed) or ", ".join(check.name for check in self.checks)

    def runner_version(self) -> str:
        """The version of actions/runner that the check of that name found, or nothing."""
        found = (one.detail for one in self.checks if one.ok and one.name == "runner_version")
        version = next(found, "")
        return version if _VERSION.fullmatch(version) else ""


class PollRequest(Request):
    """How long to wait for an assignment, in seconds."""

    wait: Annotated[float, Field(ge=0, le=MAX_WAIT, allow_inf_nan=False)]


class AcknowledgeRequest(Request):
    """Which assignment the machine has."""

    runner: _Word


class ExitRequest(Request):
    """What the machine says of its runner's end."""

    detail: str = ""
    reason: str = ""

    def known_reason(self) -> ExitReason:
        """The reason, or `unknown` for a word that is not in the list."""
        words = {reason.value: reason for reason in ExitReason}
        return words.get(self.reason, ExitReason.UNKNOWN)


Step = Literal[
    "agent",
    "hello",
    "stage",
    "gate",
    "poll",
    "acknowledge",
    "heartbeat",
    "may-release",
    "release",
    "exit",
]
"""Every step that bootstrap requests are counted under."""


def readable(text: str) -> str:
    """A stranger's words on one line, without control characters, cut to `MAX_DETAIL`."""
    kept = "".join(char if char.isprintable() else " " for char in text[:MAX_DETAIL])
    return kept.strip()
