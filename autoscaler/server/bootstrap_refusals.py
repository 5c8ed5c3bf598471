"""From what went wrong with a bootstrap request to its status and its word, as docs/bootstrap.md has them.

Never passes on the text of an error: it may hold what the machine sent.
"""

from dataclasses import dataclass

from pydantic import ValidationError

from autoscaler.controller.ports.bootstrap import BootstrapRefusedError, NotKnownYetError
from autoscaler.controller.ports.store import StoreError
from autoscaler.model.identifiers import Seconds
from autoscaler.server.bodies import BodyRefusedError

REFUSALS = (
    BootstrapRefusedError,
    NotKnownYetError,
    StoreError,
    BodyRefusedError,
    ValidationError,
)
"""The errors that are answers; any other one is a defect."""

_TOO_MANY_REQUESTS = 429
_RETRY_AFTER: Seconds = 5.0


@dataclass(frozen=True, slots=True)
class Refusal:
    """A status, its word, and after how many seconds to try again, where that helps."""

    status: int
    word: str
    retry_after: Seconds | None = None


def refusal_of(error: Exception) -> Refusal:
    """The answer to one of REFUSALS. Raises TypeError for another."""
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
