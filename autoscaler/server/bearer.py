"""Checks bearer tokens (RFC 6750) in constant time."""

import hashlib
import hmac
from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

MAX_TOKEN_LENGTH = 1024

H = TypeVar("H")


def token_digest(token: str) -> bytes:
    """Return the digest by which a token is recognized."""
    return hashlib.sha256(token.encode(errors="surrogateescape")).digest()


def bearer_token(headers: Sequence[str]) -> str:
    """Return the token of exactly one Authorization header with the scheme Bearer, else an empty string."""
    scheme, _, token = headers[0].partition(" ") if len(headers) == 1 else ("", "", "")
    return token if scheme.lower() == "bearer" else ""


class BearerTokens(Generic[H]):
    """A set of valid tokens, each with its holder. Keeps the digests of the tokens only.

    SHA-256 is enough: a token has at least 128 random bits, so that no slow hash is needed against guessing.
    """

    def __init__(self, tokens: Iterable[tuple[bytes, H]]) -> None:
        self._holders = [(hashlib.sha256(token).digest(), holder) for token, holder in tokens]

    def __bool__(self) -> bool:
        """Return True if there is a valid token."""
        return bool(self._holders)

    def holder(self, headers: Sequence[str]) -> H | None:
        """Return the holder of the token if there is exactly one Authorization header, with a valid token."""
        return self.holder_of(bearer_token(headers))

    def holder_of(self, token: str) -> H | None:
        """Return the holder of a token, or None if the token is not valid."""
        if not 0 < len(token) <= MAX_TOKEN_LENGTH:
            return None
        return self.holder_of_digest(token_digest(token))

    def holder_of_digest(self, digest: bytes) -> H | None:
        """Return the holder of the token with this digest, or None if no valid token has it."""
        # Compares with every digest, so that the time does not depend on which one matches.
        same = [hmac.compare_digest(digest, known) for known, _ in self._holders]
        return self._holders[same.index(True)][1] if any(same) else None
