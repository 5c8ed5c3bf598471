"""Bearer tokens (RFC 6750): the valid ones, their file, and how many wrong ones an address may try."""

import hashlib
import hmac
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

import structlog

from autoscaler.model.identifiers import Seconds
from autoscaler.model.operators import Operator
from autoscaler.server.file_stamp import file_stamp, is_empty
from autoscaler.server.listening.places import peer_of

MAX_TOKEN_LENGTH = 1024

MOST_WRONG = 10
"""Maximum number of different wrong tokens of one address in a window. A program with an old token has one."""

WRONG_FOR: Seconds = 60.0
"""How long they count, from the first one on: the longest time that an address is asked to wait."""

MOST_PEERS = 1024
"""Maximum number of addresses, about 1 KB each. A further one replaces the one whose window began first."""

H = TypeVar("H")

_log = structlog.get_logger(__name__)


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


class UnusableTokensError(Exception):
    """A file of tokens cannot be used. The text names the file and the error, and contains no token."""


class TokenFile:
    """The operators' tokens in `file`, which `read` reads. `read` raises UnusableTokensError.

    Reads the file again when it changes. If the new file cannot be used, logs an error and keeps the earlier
    tokens in use. Without a file, or with an empty one, no token is valid: that revokes all.
    """

    def __init__(self, file: Path, read: Callable[[], Iterable[tuple[bytes, Operator]]]) -> None:
        """Read the file.

        Raises: UnusableTokensError.
        """
        self._file = file
        self._read = read
        self._stamp = file_stamp(file)
        self._tokens = BearerTokens(read())

    def tokens(self) -> BearerTokens[Operator]:
        """Return the valid tokens. Reads the file again if it changed.

        One stat(2) call per request replaces a timer: a removed token is refused from the next request on.
        """
        stamp = file_stamp(self._file)
        if stamp != self._stamp:
            # Set before the file is read, so that one bad version is logged once.
            self._stamp = stamp
            try:
                found = [] if is_empty(stamp) else list(self._read())
            except UnusableTokensError as error:
                _log.error("admin_tokens_not_reloaded", error=str(error))
            else:
                self._tokens = BearerTokens(found)
                names = sorted({f"{holder.name} ({holder.role})" for _, holder in found})
                _log.info("admin_tokens_reloaded", operators=names)
        return self._tokens


@dataclass(slots=True)
class _Tried:
    """The digests of an address' wrong tokens, and when its window began."""

    since: float
    digests: set[bytes] = field(default_factory=set)


class WrongTokens:
    """The wrong tokens of each address, at the sign-in and at /admin together. Keeps digests only.

    A valid token is accepted whatever else its address sent: another sender behind the same proxy must not keep
    an operator out. Tokens have at least 128 random bits, so that guesses find none at any rate. Who sends many
    wrong tokens is asked to wait. `clock` returns monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float], most: int = MOST_WRONG) -> None:
        self._clock = clock
        self._most = most
        self._tried: OrderedDict[str, _Tried] = OrderedDict()

    def note(self, host: str | None, token: str) -> Seconds:
        """Count a wrong token. Return how long the host should wait: 0.0 while it is within the bound.

        The same token counts once in a window, and an empty one is no guess.
        """
        if not token:
            return 0.0
        peer, now = peer_of(host or ""), self._clock()
        tried = self._tried.get(peer)
        if tried is None or now - tried.since >= WRONG_FOR:
            self._tried.pop(peer, None)
            tried = self._tried[peer] = _Tried(now)
            if len(self._tried) > MOST_PEERS:
                self._tried.popitem(last=False)
        if len(tried.digests) >= self._most:
            return tried.since + WRONG_FOR - now
        tried.digests.add(token_digest(token))
        return 0.0
