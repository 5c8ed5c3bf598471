"""Bounds how many wrong operators' tokens an address may try, at the sign-in and at /admin together.

A valid token is accepted whatever else its address sent: another sender behind the same proxy must not keep an
operator out. Tokens have at least 128 random bits, so that guesses find none at any rate. Who sends many wrong
tokens is asked to wait.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from autoscaler.model.identifiers import Seconds
from autoscaler.server.bearer import token_digest
from autoscaler.server.places import peer_of

MOST = 10
"""Maximum number of different wrong tokens of one address in a window. A program with an old token has one."""

WINDOW: Seconds = 60.0
"""How long they count, from the first one on: the longest time that an address is asked to wait."""

MOST_PEERS = 1024
"""Maximum number of addresses, about 1 KB each. A further one replaces the one whose window began first."""


@dataclass(slots=True)
class _Tried:
    """The digests of an address' wrong tokens, and when its window began."""

    since: float
    digests: set[bytes] = field(default_factory=set)


class WrongTokens:
    """The wrong tokens of each address, as digests. `clock` returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float], most: int = MOST) -> None:
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
        if tried is None or now - tried.since >= WINDOW:
            self._tried.pop(peer, None)
            tried = self._tried[peer] = _Tried(now)
            if len(self._tried) > MOST_PEERS:
                self._tried.popitem(last=False)
        if len(tried.digests) >= self._most:
            return tried.since + WINDOW - now
        tried.digests.add(token_digest(token))
        return 0.0
