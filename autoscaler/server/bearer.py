"""Checks bearer tokens (RFC 6750) in a time that tells nothing of them."""

import hashlib
import hmac
from collections.abc import Sequence

LONGEST_TOKEN = 1024


class BearerTokens:
    """Holds digests, no tokens."""

    def __init__(self, tokens: Sequence[bytes]) -> None:
        self._digests = [hashlib.sha256(token).digest() for token in tokens]

    def __bool__(self) -> bool:
        """Return whether there is any."""
        return bool(self._digests)

    def accept(self, headers: Sequence[str]) -> bool:
        """Return whether these Authorization headers are one, with a token that is held."""
        scheme, _, token = headers[0].partition(" ") if len(headers) == 1 else ("", "", "")
        if scheme.lower() != "bearer" or not 0 < len(token) <= LONGEST_TOKEN:
            return False
        digest = hashlib.sha256(token.encode(errors="surrogateescape")).digest()
        # Compared with every one, so that the time does not tell which came close.
        same = [hmac.compare_digest(digest, known) for known in self._digests]
        return any(same)
