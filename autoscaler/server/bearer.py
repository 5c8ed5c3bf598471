"""Checks bearer tokens (RFC 6750) in constant time."""

import hashlib
import hmac
from collections.abc import Sequence

MAX_TOKEN_LENGTH = 1024


class BearerTokens:
    """A set of valid tokens. Keeps their digests only."""

    def __init__(self, tokens: Sequence[bytes]) -> None:
        self._digests = [hashlib.sha256(token).digest() for token in tokens]

    def __bool__(self) -> bool:
        """Return True if there is a valid token."""
        return bool(self._digests)

    def accept(self, headers: Sequence[str]) -> bool:
        """Return True if there is exactly one Authorization header, with a valid token."""
        scheme, _, token = headers[0].partition(" ") if len(headers) == 1 else ("", "", "")
        if scheme.lower() != "bearer" or not 0 < len(token) <= MAX_TOKEN_LENGTH:
            return False
        digest = hashlib.sha256(token.encode(errors="surrogateescape")).digest()
        # Compares with every digest, so that the time does not depend on which one matches.
        same = [hmac.compare_digest(digest, known) for known in self._digests]
        return any(same)
