"""Maps errors of bootstrap requests to statuses and words of docs/bootstrap.md.

An answer never contains the text of an error, which may contain what the machine sent.
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
