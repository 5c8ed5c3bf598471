"""What GitHub's refusals mean: each becomes one of the port's errors, by what to do next.

Decides how long to leave GitHub alone after a limit, and keeps that promise for all callers.
Never sends anything.

Limits: docs.github.com "Rate limits for the REST API": primary limits answer 403 or 429 with
`x-ratelimit-remaining: 0`; secondary ones with `retry-after`, or neither, then at least 60 s.
"""

from autoscaler.controller.ports.github import (
    GitHubError,
    MintOutcomeUnknownError,
    OperatorError,
    RetryLaterError,
)
from autoscaler.github.exchange import Answer, Effect, Request
from autoscaler.model.identifiers import Instant, Seconds

OUTAGE_DELAY: Seconds = 30.0
"""After requests that found no GitHub, or a broken one."""

_SECONDARY_DELAY: Seconds = 60.0
_SHORTEST: Seconds = 1.0
_LONGEST: Seconds = 3600.0
_LIMIT_WORDS = ("rate limit", "abuse detection")


def is_limit(answer: Answer) -> bool:
    """Whether this is a primary or secondary limit's refusal."""
    if answer.status == 429:
        return True
    if answer.status != 403:
        return False
    spent = answer.headers.get("x-ratelimit-remaining") == "0"
    said = any(words in answer.message.lower() for words in _LIMIT_WORDS)
    return spent or said or "retry-after" in answer.headers


def is_outage(answer: Answer) -> bool:
    """Whether nothing can be read from this about the request, not even that it failed."""
    return answer.status >= 500 or answer.status == 408


def delay_of(answer: Answer, now: Instant, otherwise: Seconds = _SECONDARY_DELAY) -> Seconds:
    """How long to wait by the answer's own headers, within a second and an hour."""
    delay = _number(answer.headers.get("retry-after"))
    if delay is None and answer.headers.get("x-ratelimit-remaining") == "0":
        reset = _number(answer.headers.get("x-ratelimit-reset"))
        delay = None if reset is None else reset - now
    return min(max(otherwise if delay is None else delay, _SHORTEST), _LONGEST)


def refusal(request: Request, answer: Answer, now: Instant) -> GitHubError:
    """The port's error for an answer that the request did not expect."""
    text = f"{request.endpoint}: {answer.status}"
    if answer.message:
        text += f" {answer.message}"
    if is_limit(answer):
        return RetryLaterError(text, delay_of(answer, now))
    if is_outage(answer):
        return unanswered(request, text, delay_of(answer, now, OUTAGE_DELAY))
    if 300 <= answer.status < 400:
        return OperatorError(f"{text}: moved; was the account or the repository renamed?")
    if answer.status in request.expected:
        return unanswered(request, f"{text}, and not in GitHub's form", OUTAGE_DELAY)
    return OperatorError(text)


def unanswered(request: Request, text: str, delay: Seconds = OUTAGE_DELAY) -> GitHubError:
    """The port's error for a request that left and came back without an answer to rely on."""
    if request.effect is Effect.MINT:
        return MintOutcomeUnknownError(text)
    return RetryLaterError(text, delay)


class Holds:
    """Which callers must leave GitHub alone, and until when.

    Asking on during a limit prolongs it. Keys are few: one per App or installation, twice.
    """

    def __init__(self) -> None:
        self._until: dict[tuple[str, bool], Instant] = {}

    def check(self, caller: str, request: Request, now: Instant) -> None:
        """Raise RetryLaterError while this caller is held."""
        until = self._until.get(self._key(caller, request), now)
        if until > now:
            raise RetryLaterError(f"{request.endpoint}: held by an earlier limit", until - now)

    def note(self, caller: str, request: Request, answer: Answer, now: Instant) -> None:
        """Remember a limit that was met, or that this answer used up."""
        if is_limit(answer) or answer.headers.get("x-ratelimit-remaining") == "0":
            self._until[self._key(caller, request)] = now + delay_of(answer, now)

    @staticmethod
    def _key(caller: str, request: Request) -> tuple[str, bool]:
        # Registrations have a bucket of their own at GitHub (actions_runner_registration).
        return caller, request.effect is Effect.MINT


def _number(text: str | None) -> float | None:
    return float(text) if text is not None and text.isascii() and text.isdigit() else None
