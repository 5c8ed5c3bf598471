"""Values for a request to GitHub and its answer, and the errors of the connection.

`outcomes` defines what each status means, and `api` repeats requests.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from typing import Any

from autoscaler.model.identifiers import Seconds


class Effect(StrEnum):
    """What a request changes at GitHub. It decides what happens if no answer arrives.

    read      changes nothing: the request is repeated
    write     changes something: the caller repeats it later if it is still needed
    register  creates a registration: not repeated, the caller looks the registration up
    """

    READ = "read"
    WRITE = "write"
    REGISTER = "register"


class Importance(IntEnum):
    """The order of requests if GitHub's limits do not allow all: the lowest number goes first.

    register  a registration, and what it needs: tokens, installations, runner groups
    check     reads a job, a run or a runner before a decision
    remove    deletes a registration that is not needed
    sync      reads lists, and requests redelivery
    """

    REGISTER = 0
    CHECK = 1
    REMOVE = 2
    SYNC = 3


@dataclass(frozen=True, slots=True)
class Request:
    """A request. `route` is a URI template (RFC 6570); `url`, for a next page, replaces it.

    `expected` are statuses besides 2xx that the caller handles. They count only with a body in
    GitHub's own format, because a proxy's 404 proves nothing. `etag` is that of a cached answer:
    GitHub answers 304 if it is still current, which does not count against the hourly limit.
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
        """The name for metrics and messages: the method and the route, without values."""
        return f"{self.method} {self.route.partition('{?')[0]}"

    @property
    def points(self) -> int:
        """The points of GitHub's secondary limit that it costs: a read 1, a write 5."""
        return 1 if self.method == "GET" else 5

    def at(self, url: str) -> "Request":
        """Return the same request with another URL."""
        return replace(self, url=url)


@dataclass(frozen=True, slots=True)
class Answer:
    """GitHub's answer. `data` is the decoded JSON, or None, and may contain secrets."""

    status: int
    headers: Mapping[str, str] = field(repr=False)
    data: Any = field(default=None, repr=False)
    next_url: str | None = field(default=None, repr=False)
    clock_ahead: Seconds = 0.0
    """Seconds by which this host's clock is ahead of GitHub's `Date`; negative if it is behind."""

    @property
    def ok(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status < 300

    @property
    def genuine(self) -> bool:
        """Whether an error has GitHub's own format, so that it is not from a proxy."""
        return isinstance(self.data, dict) and isinstance(self.data.get("message"), str)

    @property
    def message(self) -> str:
        """GitHub's error message, shortened and printable; empty if there is none."""
        if not self.genuine:
            return ""
        return "".join(c if c.isprintable() else " " for c in self.data["message"][:200])


class NotSentError(Exception):
    """The request was not sent: no DNS name, connection or TLS session, or this process does not lead.

    `outcome` is for metrics. `lasting`: a retry will not help, such as with a certificate that is not trusted.
    """

    def __init__(self, outcome: str, detail: str, *, lasting: bool = False) -> None:
        super().__init__(f"{outcome}: {detail}")
        self.outcome = outcome
        self.lasting = lasting


BROKEN = "broken"
"""The outcome of an answer that arrived and cannot be read."""


class NoAnswerError(Exception):
    """GitHub may have carried the request out, but no readable answer arrived."""

    def __init__(self, outcome: str, detail: str) -> None:
        super().__init__(f"{outcome}: {detail}")
        self.outcome = outcome
