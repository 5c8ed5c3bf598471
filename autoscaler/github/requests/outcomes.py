"""The outcomes of a request to GitHub: how each is recognized, the next action, and the port's error. Pure.

A test compares the table with docs/github.md; `api` acts on it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from autoscaler.controller.ports.github import (
    GitHubError,
    OperatorError,
    RegistrationOutcomeUnknownError,
    RetryLaterError,
)
from autoscaler.github.requests.exchange import Answer, Effect, Request
from autoscaler.model.cooldowns import RateLimit
from autoscaler.model.identifiers import Seconds


class Action(StrEnum):
    """The next action after a request.

    take       return the answer to the caller
    again      repeat the request after 1 and 3 seconds, then as `later`
    later      raise RetryLaterError: the controller tries again later
    hold       raise LimitError: send nothing for this App for a while; another App may be used
    look up    raise RegistrationOutcomeUnknownError: the registration may exist, so look for its name first
    renew      repeat once with a new token, then as `other app`
    other app  raise NotAllowedError: use another App; if there is none left, as `operator`
    follow     request the URL that the answer names, at most three times, within the API's origin
    operator   raise OperatorError: an operator must change something
    """

    TAKE = "take"
    AGAIN = "again"
    LATER = "later"
    HOLD = "hold"
    LOOK_UP = "look up"
    RENEW = "renew"
    OTHER_APP = "other app"
    FOLLOW = "follow"
    OPERATOR = "operator"


class Outcome(StrEnum):
    """The outcome of one request."""

    ANSWERED = "answered"
    UNREADABLE = "unreadable"
    MALFORMED = "malformed"
    UNANSWERED = "unanswered"
    NOT_SENT = "not sent"
    UNTRUSTED = "untrusted"
    LIMITED = "limited"
    UNAUTHORISED = "unauthorised"
    FORBIDDEN = "forbidden"
    MOVED = "moved"
    OUTAGE = "outage"
    NOT_GITHUB = "not github"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Policy:
    """How to recognize an outcome, and the action for each effect of a request."""

    known_by: str
    read: Action
    write: Action
    register: Action

    def action(self, effect: Effect) -> Action:
        """Return the action for a request with this effect."""
        return {Effect.READ: self.read, Effect.WRITE: self.write, Effect.REGISTER: self.register}[
            effect
        ]


_A = Action

POLICIES: Mapping[Outcome, Policy] = {
    Outcome.ANSWERED: Policy(
        "2xx; 304 to a request with an ETag; a 404, 409 or 422 that the request expects, in "
        "GitHub's own format",
        *(_A.TAKE, _A.TAKE, _A.TAKE),
    ),
    Outcome.UNREADABLE: Policy(
        "2xx with HTML, broken JSON, another charset, or more than 8 MiB",
        *(_A.AGAIN, _A.LATER, _A.LOOK_UP),
    ),
    Outcome.MALFORMED: Policy(
        "2xx with JSON in another form than documented", *(_A.LATER, _A.LATER, _A.LOOK_UP)
    ),
    Outcome.UNANSWERED: Policy(
        "a timeout, or a connection that broke after the request was sent",
        *(_A.AGAIN, _A.LATER, _A.LOOK_UP),
    ),
    Outcome.NOT_SENT: Policy(
        "no DNS name, no connection or no TLS session; a write while another replica leads",
        *(_A.AGAIN, _A.LATER, _A.LATER),
    ),
    Outcome.UNTRUSTED: Policy(
        "a certificate that is not trusted; a link away from the API's origin",
        *(_A.OPERATOR, _A.OPERATOR, _A.OPERATOR),
    ),
    Outcome.LIMITED: Policy(
        "429; 403 with `retry-after`, `x-ratelimit-remaining: 0` or the message of a rate limit",
        *(_A.HOLD, _A.HOLD, _A.HOLD),
    ),
    Outcome.UNAUTHORISED: Policy("401", *(_A.RENEW, _A.RENEW, _A.RENEW)),
    Outcome.FORBIDDEN: Policy(
        "403 in GitHub's own format, without a rate limit",
        *(_A.OTHER_APP, _A.OTHER_APP, _A.OTHER_APP),
    ),
    Outcome.MOVED: Policy("3xx", *(_A.FOLLOW, _A.OPERATOR, _A.OPERATOR)),
    Outcome.OUTAGE: Policy("5xx, 408", *(_A.AGAIN, _A.LATER, _A.LOOK_UP)),
    Outcome.NOT_GITHUB: Policy(
        "403, 404, 409 or 422 not in GitHub's own format, such as from a proxy",
        *(_A.LATER, _A.LATER, _A.LOOK_UP),
    ),
    Outcome.REFUSED: Policy("any other 4xx", *(_A.OPERATOR, _A.OPERATOR, _A.OPERATOR)),
}

UNCHANGED = 304
_LIMIT_WORDS = ("rate limit", "abuse detection")
_SENT_BY_PROXIES_TOO = frozenset({403, 404, 409, 422})


def outcome_of(request: Request, answer: Answer) -> Outcome:
    """Return the outcome of an answered request: the first that fits."""
    if answer.ok or (answer.status in request.expected and answer.genuine):
        return Outcome.ANSWERED
    if answer.status == UNCHANGED and request.etag is not None:
        return Outcome.ANSWERED
    if limit_of(answer) is not None:
        return Outcome.LIMITED
    if answer.status >= 500 or answer.status == 408:
        return Outcome.OUTAGE
    if 300 <= answer.status < 400:
        return Outcome.MOVED
    if answer.status == 401:
        return Outcome.UNAUTHORISED
    if answer.status in _SENT_BY_PROXIES_TOO and not answer.genuine:
        return Outcome.NOT_GITHUB
    return Outcome.FORBIDDEN if answer.status == 403 else Outcome.REFUSED


def limit_of(answer: Answer) -> RateLimit | None:
    """Return the rate limit because of which GitHub refused, or None.

    Only the primary limit leaves no request (docs.github.com, "Exceeding the rate limit").
    """
    if answer.status not in (403, 429):
        return None
    if answer.headers.get("x-ratelimit-remaining") == "0":
        return RateLimit.PRIMARY
    said = any(words in answer.message.lower() for words in _LIMIT_WORDS)
    if answer.status == 429 or said or "retry-after" in answer.headers:
        return RateLimit.SECONDARY
    return None


CLOCK_TOLERANCE: Seconds = 30.0
"""A clock that is off by more is named. GitHub refuses JWTs of one that is ahead by more than a minute."""

_OF_A_PART = frozenset({"run_id", "job_id", "runner_id", "version"})
"""The variables of routes about one thing in a repository, which may be what does not exist."""

OUTAGE_DELAY: Seconds = 30.0
"""The time until a retry after GitHub was unreachable or answered with an error of its own."""


class LimitError(RetryLaterError):
    """An App met a rate limit. GitHub did nothing, and another App may send the request now."""


class NotAllowedError(OperatorError):
    """This App lacks the permission. GitHub did nothing, and another App may have the permission."""


class NotShownError(NotAllowedError):
    """404: the object does not exist, or this App may not see it."""


def error_for(
    request: Request,
    outcome: Outcome,
    text: str,
    delay: Seconds = OUTAGE_DELAY,
    limit: RateLimit | None = None,
) -> GitHubError:
    """Return the port's error for an outcome. `delay` is the time until a retry, if one can help.

    `limit` is the rate limit that GitHub named.
    """
    action = POLICIES[outcome].action(request.effect)
    message = f"{request.endpoint}: {text}"
    if action is Action.HOLD:
        return LimitError(message, delay, limit)
    if action is Action.LOOK_UP:
        return RegistrationOutcomeUnknownError(message)
    if action in (Action.AGAIN, Action.LATER):
        return RetryLaterError(message, delay)
    if action in (Action.RENEW, Action.OTHER_APP):
        return NotAllowedError(message)
    return OperatorError(message)


def not_shown(request: Request, answer: Answer) -> NotShownError:
    """Return the error for a 404. Names the repository if the request is about nothing else in it."""
    text = f"{request.endpoint}: {answer.status} {answer.message}"
    if request.variables.keys() & {"owner", "repo"} and not request.variables.keys() & _OF_A_PART:
        repository = f"{request.variables['owner']}/{request.variables['repo']}"
        text += f"; {repository} was deleted or renamed, or the App has no access to it"
    return NotShownError(text)


def unusable_answer(request: Request, text: str) -> GitHubError:
    """Return the port's error for an answer with other data than the request asked for."""
    return error_for(request, Outcome.MALFORMED, text)


def summary_of(outcome: Outcome, answer: Answer) -> str:
    """Return an answer as short text for people, without secrets: status and GitHub's message."""
    text = f"{answer.status} {answer.message}".rstrip()
    if outcome is Outcome.UNAUTHORISED and abs(answer.clock_ahead) > CLOCK_TOLERANCE:
        side = "ahead of" if answer.clock_ahead > 0 else "behind"
        return (
            f"{text}; this host's clock is {abs(answer.clock_ahead):.0f} s {side} GitHub's: set it"
        )
    if outcome is Outcome.MOVED:
        return f"{text}: moved; was the account or the repository renamed?"
    return f"{text}, and not in GitHub's format" if outcome is Outcome.NOT_GITHUB else text


def error_of_all(errors: Sequence[GitHubError]) -> GitHubError:
    """Return the error to raise if every App failed: the one with the earliest retry, or the first."""
    later = [error for error in errors if isinstance(error, RetryLaterError)]
    if later:
        return min(later, key=lambda error: error.retry_after)
    return errors[0]
