"""Creates the port's error for each outcome of a request, with its text and delay. Pure.

`policies` defines the action for each outcome.
"""

from collections.abc import Sequence

from autoscaler.controller.ports.github import (
    GitHubError,
    OperatorError,
    RegistrationOutcomeUnknownError,
    RetryLaterError,
)
from autoscaler.github.requests.exchange import Answer, Request
from autoscaler.github.requests.policies import POLICIES, Action, Outcome
from autoscaler.model.identifiers import Seconds

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
    request: Request, outcome: Outcome, text: str, delay: Seconds = OUTAGE_DELAY
) -> GitHubError:
    """Return the port's error for an outcome. `delay` is the time until a retry, if one can help."""
    action = POLICIES[outcome].action(request.effect)
    message = f"{request.endpoint}: {text}"
    if action is Action.HOLD:
        return LimitError(message, delay)
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
