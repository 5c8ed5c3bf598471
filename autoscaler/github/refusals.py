"""Each outcome that is no answer becomes one of the port's errors, by what to do next.

Decides the words and the delay of an error. What is to be done stands in `policies`; nothing is
sent from here.
"""

from collections.abc import Sequence

from autoscaler.controller.ports.github import (
    GitHubError,
    OperatorError,
    RegistrationOutcomeUnknownError,
    RetryLaterError,
)
from autoscaler.github.exchange import Answer, Request
from autoscaler.github.policies import POLICIES, Action, Outcome
from autoscaler.model.identifiers import Seconds

OUTAGE_DELAY: Seconds = 30.0
"""After requests that found no GitHub, or a broken one."""


class LimitError(RetryLaterError):
    """One App's limit: it was not carried out, and another App may carry it out now."""


class NotAllowedError(OperatorError):
    """This App may not do that: it was not carried out, and another App may be allowed to."""


class NotShownError(NotAllowedError):
    """404 to a question: it is not there, or not among what this App is shown."""


def refusal(
    request: Request, outcome: Outcome, text: str, delay: Seconds = OUTAGE_DELAY
) -> GitHubError:
    """The port's error for this outcome. `delay` is how long to wait where waiting helps."""
    action = POLICIES[outcome].action(request.effect)
    said = f"{request.endpoint}: {text}"
    if action is Action.HOLD:
        return LimitError(said, delay)
    if action is Action.LOOK_UP:
        return RegistrationOutcomeUnknownError(said)
    if action in (Action.AGAIN, Action.LATER):
        return RetryLaterError(said, delay)
    if action in (Action.RENEW, Action.OTHER_APP):
        return NotAllowedError(said)
    return OperatorError(said)


def unanswered(request: Request, text: str) -> GitHubError:
    """The port's error for an answer whose content is no answer to the request."""
    return refusal(request, Outcome.MISSHAPEN, text)


def words_of(outcome: Outcome, answer: Answer) -> str:
    """An answer in a few words for people: no secret, no body but GitHub's own message."""
    text = f"{answer.status} {answer.message}".rstrip()
    if outcome is Outcome.MOVED:
        return f"{text}: moved; was the account or the repository renamed?"
    return f"{text}, and not in GitHub's form" if outcome is Outcome.FOREIGN else text


def gravest(errors: Sequence[GitHubError]) -> GitHubError:
    """What to tell when every App failed: the soonest moment to try again, if waiting may help."""
    later = [error for error in errors if isinstance(error, RetryLaterError)]
    if later:
        return min(later, key=lambda error: error.retry_after)
    return errors[0]
