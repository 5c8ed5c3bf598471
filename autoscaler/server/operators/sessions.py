"""Sessions of the console: a random cookie for each sign-in, kept in memory.

A session lasts as long as its token is valid, and twelve hours at most. A restart ends all sessions.
"""

import hashlib
import secrets
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from autoscaler.model.identifiers import Seconds
from autoscaler.model.operators import Operator
from autoscaler.server.tokens import BearerTokens, token_digest

LIFETIME: Seconds = 12 * 3600.0

MOST_SESSIONS = 256
"""Maximum number of sessions. A further one ends the oldest session of the token that has the most."""

_ID_LENGTH = 43
"""Characters of `secrets.token_urlsafe(32)`: 256 random bits."""


@dataclass(frozen=True, slots=True)
class Session:
    """One sign-in. `ends_at` is by the clock of `Sessions`."""

    token: bytes
    """The digest of the token."""
    ends_at: float


class Sessions:
    """All sessions. Keeps digests of their cookies and tokens only.

    `tokens` returns the tokens that are valid now, `clock` the time in seconds.
    """

    def __init__(
        self, tokens: Callable[[], BearerTokens[Operator]], clock: Callable[[], float]
    ) -> None:
        self._tokens = tokens
        self._clock = clock
        self._sessions: dict[bytes, Session] = {}

    def open(self, token: str) -> str | None:
        """Return the cookie of a new session, or None if the token is not valid."""
        if self._tokens().holder_of(token) is None:
            return None
        self._sessions = {
            key: one for key, one in self._sessions.items() if one.ends_at > self._clock()
        }
        if len(self._sessions) >= MOST_SESSIONS:
            # The token with most sessions loses one, so that it cannot sign out all others.
            most, _ = Counter(one.token for one in self._sessions.values()).most_common(1)[0]
            del self._sessions[next(k for k, one in self._sessions.items() if one.token == most)]
        cookie = secrets.token_urlsafe(32)
        self._sessions[_digest(cookie)] = Session(token_digest(token), self._clock() + LIFETIME)
        return cookie

    def operator(self, cookie: str) -> Operator | None:
        """Return who signed in with this cookie, or None if the session is over."""
        if len(cookie) != _ID_LENGTH:
            return None
        session = self._sessions.get(_digest(cookie))
        if session is None or session.ends_at <= self._clock():
            return None
        return self._tokens().holder_of_digest(session.token)

    def close(self, cookie: str) -> None:
        """End a session, if there is one with this cookie."""
        self._sessions.pop(_digest(cookie), None)


def _digest(cookie: str) -> bytes:
    # Looked up by its digest, so that the time of the look-up shows nothing about a cookie.
    return hashlib.sha256(cookie.encode(errors="surrogateescape")).digest()
