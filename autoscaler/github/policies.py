"""What can come back from GitHub, how each is told from the others, and what is done about it.

The table is the code's own and docs/github.md's; `api` and `refusals` carry it out. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from autoscaler.github.exchange import Answer, Effect, Request


class Action(StrEnum):
    """What to do next.

    take       it is an answer: the caller reads it
    again      ask twice more, after 1 and 3 seconds, then as `later`
    later      RetryLaterError: nothing is lost by asking again later
    hold       LimitError: this App leaves GitHub alone for a while, another may go on
    look up    MintOutcomeUnknownError: the registration's name is looked up before anything else
    renew      once more at once with a new token, then as `other app`
    other app  NotAllowedError: another App may be allowed; with none left, the operator's
    follow     ask where the answer points, three times at most, within the API's origin
    operator   OperatorError: somebody must change something first
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
    """What came back of one request."""

    ANSWERED = "answered"
    UNREADABLE = "unreadable"
    MISSHAPEN = "misshapen"
    UNANSWERED = "unanswered"
    NOT_SENT = "not sent"
    BARRED = "barred"
    LIMITED = "limited"
    UNAUTHORISED = "unauthorised"
    FORBIDDEN = "forbidden"
    MOVED = "moved"
    OUTAGE = "outage"
    FOREIGN = "foreign"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Policy:
    """How an outcome is known, and what is done by the effect of the request."""

    known_by: str
    read: Action
    write: Action
    mint: Action

    def action(self, effect: Effect) -> Action:
        """What to do about a request of this effect."""
        return {Effect.READ: self.read, Effect.WRITE: self.write, Effect.MINT: self.mint}[effect]


_A = Action

POLICIES: Mapping[Outcome, Policy] = {
    Outcome.ANSWERED: Policy(
        "2xx; 304 where what we have was named; a 404, 409 or 422 that the request expects, in "
        "GitHub's own form",
        *(_A.TAKE, _A.TAKE, _A.TAKE),
    ),
    Outcome.UNREADABLE: Policy(
        "2xx with HTML, broken JSON, another charset, or more than 8 MiB",
        *(_A.AGAIN, _A.LATER, _A.LOOK_UP),
    ),
    Outcome.MISSHAPEN: Policy(
        "2xx with JSON of another shape than documented", *(_A.LATER, _A.LATER, _A.LOOK_UP)
    ),
    Outcome.UNANSWERED: Policy(
        "the time is over, or the connection broke after sending",
        *(_A.AGAIN, _A.LATER, _A.LOOK_UP),
    ),
    Outcome.NOT_SENT: Policy(
        "no name, no connection, no TLS session", *(_A.AGAIN, _A.LATER, _A.LATER)
    ),
    Outcome.BARRED: Policy(
        "a certificate that is not trusted; a link away from the API's origin",
        *(_A.OPERATOR, _A.OPERATOR, _A.OPERATOR),
    ),
    Outcome.LIMITED: Policy(
        "429; 403 with `retry-after`, `x-ratelimit-remaining: 0` or a limit's words",
        *(_A.HOLD, _A.HOLD, _A.HOLD),
    ),
    Outcome.UNAUTHORISED: Policy("401", *(_A.RENEW, _A.RENEW, _A.RENEW)),
    Outcome.FORBIDDEN: Policy(
        "403 in GitHub's own form, no limit", *(_A.OTHER_APP, _A.OTHER_APP, _A.OTHER_APP)
    ),
    Outcome.MOVED: Policy("3xx", *(_A.FOLLOW, _A.OPERATOR, _A.OPERATOR)),
    Outcome.OUTAGE: Policy("5xx, 408", *(_A.AGAIN, _A.LATER, _A.LOOK_UP)),
    Outcome.FOREIGN: Policy(
        "403, 404, 409 or 422 not in GitHub's own form, as a proxy's",
        *(_A.LATER, _A.LATER, _A.LOOK_UP),
    ),
    Outcome.REFUSED: Policy("any other 4xx", *(_A.OPERATOR, _A.OPERATOR, _A.OPERATOR)),
}

UNCHANGED = 304
_LIMIT_WORDS = ("rate limit", "abuse detection")
_PROXIES_SAY_TOO = frozenset({403, 404, 409, 422})


def outcome_of(request: Request, answer: Answer) -> Outcome:
    """Which of the outcomes this answer is. The first that fits."""
    if answer.ok or (answer.status in request.expected and answer.genuine):
        return Outcome.ANSWERED
    if answer.status == UNCHANGED and request.etag is not None:
        return Outcome.ANSWERED
    if is_limit(answer):
        return Outcome.LIMITED
    if answer.status >= 500 or answer.status == 408:
        return Outcome.OUTAGE
    if 300 <= answer.status < 400:
        return Outcome.MOVED
    if answer.status == 401:
        return Outcome.UNAUTHORISED
    if answer.status in _PROXIES_SAY_TOO and not answer.genuine:
        return Outcome.FOREIGN
    return Outcome.FORBIDDEN if answer.status == 403 else Outcome.REFUSED


def is_limit(answer: Answer) -> bool:
    """Whether this is a primary or secondary limit's refusal."""
    if answer.status == 429:
        return True
    if answer.status != 403:
        return False
    spent = answer.headers.get("x-ratelimit-remaining") == "0"
    said = any(words in answer.message.lower() for words in _LIMIT_WORDS)
    return spent or said or "retry-after" in answer.headers
