"""One request to GitHub and its answer, as values, and what may go wrong on the wire.

Decides nothing: whether to ask again is `api`'s, what a status means is `refusals`'.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from typing import Any


class Effect(StrEnum):
    """What a request does there, hence what may be done when no answer comes.

    read   nothing that counts: may be asked again
    write  something that the caller asks for again later, if it still wants it
    mint   makes a registration: never repeated, the outcome is looked up
    """

    READ = "read"
    WRITE = "write"
    REGISTER = "register"


class Importance(IntEnum):
    """Which request goes first where GitHub's limits are short: the lower, the earlier.

    mint    a registration, and what it takes to make one: tokens, installations, groups
    check   what GitHub says of a job or a runner, asked before a decision
    remove  a registration that is not needed
    sync    lists of jobs and runners, deliveries to be repeated: nothing waits for it
    """

    REGISTER = 0
    CHECK = 1
    REMOVE = 2
    SYNC = 3


@dataclass(frozen=True, slots=True)
class Request:
    """`route` is a URI template (RFC 6570) under the API's root; `url` overrides it for a next page.

    `expected` are statuses beside 2xx that the caller reads itself; they count only where the
    body is GitHub's JSON, since a proxy's 404 proves nothing. `etag` names the answer that we
    have: 304 says that it still stands, and does not count against the hourly limit.
    """

    method: str
    route: str
    variables: Mapping[str, str | int] = field(default_factory=dict)
    body: object = None
    effect: Effect = Effect.READ
    importance: Importance = Importance.CHECK
    expected: frozenset[int] = frozenset()
    url: str | None = None
    etag: str | None = None

    @property
    def endpoint(self) -> str:
        """The name for metrics: a set of values that the code bounds."""
        return f"{self.method} {self.route.partition('{?')[0]}"

    @property
    def points(self) -> int:
        """What it costs of GitHub's secondary limit: a read 1, a write 5."""
        return 1 if self.method == "GET" else 5

    def at(self, url: str) -> "Request":
        """The same question at another URL of the same GitHub."""
        return replace(self, url=url)


@dataclass(frozen=True, slots=True)
class Answer:
    """What GitHub answered. `data` is decoded JSON (None without any) and may hold secrets."""

    status: int
    headers: Mapping[str, str] = field(repr=False)
    data: Any = field(default=None, repr=False)
    next_url: str | None = field(default=None, repr=False)

    @property
    def ok(self) -> bool:
        """Whether it was carried out."""
        return 200 <= self.status < 300

    @property
    def genuine(self) -> bool:
        """Whether a refusal is in GitHub's own form, not a proxy's."""
        return isinstance(self.data, dict) and isinstance(self.data.get("message"), str)

    @property
    def message(self) -> str:
        """GitHub's own words about a refusal, cut and printable; empty without any."""
        if not self.genuine:
            return ""
        return "".join(c if c.isprintable() else " " for c in self.data["message"][:200])


class NotSentError(Exception):
    """The request has not left: no name, no connection, no TLS session. `outcome` is for metrics.

    `lasting` says that it will not get better by waiting (a certificate that is not trusted).
    """

    def __init__(self, outcome: str, detail: str, *, lasting: bool = False) -> None:
        super().__init__(f"{outcome}: {detail}")
        self.outcome = outcome
        self.lasting = lasting


BROKEN = "broken"
"""The outcome of an answer that came and cannot be read."""


class NoAnswerError(Exception):
    """The request may have been carried out; what came back, if anything, cannot be read."""

    def __init__(self, outcome: str, detail: str) -> None:
        super().__init__(f"{outcome}: {detail}")
        self.outcome = outcome
