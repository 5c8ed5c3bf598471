"""Counts a listener's connections, and chooses the one to close when there are too many.

An attacker can open any number of connections. A new connection therefore gets the place of the oldest one with
an unfinished handshake, head or body, or else of the one that has been idle for longest. A connection whose
request is being served is never closed for another. This module uses no sockets: the caller passes a function
that closes the connection.
"""

import asyncio
import ipaddress
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import IntEnum, auto

from autoscaler.model.identifiers import Seconds

HEADS_TOGETHER = 32 * 2**20
"""Maximum bytes of heads in memory, until their bodies arrive. Parsed heads take three times as much."""

ANSWERS_TOGETHER = 64 * 2**20
"""Maximum bytes of answers that peers may not have read. TLS takes half as much again."""

_V6_NETWORK = 64


class Stage(IntEnum):
    """How far a connection's request has come. An integer, because Python hashes it in a tenth of the time."""

    HEAD = auto()
    """Its TLS handshake or head is incomplete, or the peer reads an answer. `PlaceLimits.head` limits it."""
    BODY = auto()
    """The head is complete. The body's reader has a time limit of its own."""
    SERVED = auto()
    IDLE = auto()
    """The last request was answered. The next bytes begin another head."""


@dataclass(frozen=True, slots=True)
class PlaceLimits:
    """How many connections there may be, and how many seconds a handshake or a head may take."""

    connections: int
    head: Seconds
    heads_together: int = HEADS_TOGETHER
    answers_together: int = ANSWERS_TOGETHER

    @property
    def of_one_peer(self) -> int:
        """Connections of one peer: three quarters of all, since a fleet or a proxy can share one address."""
        return max(1, self.connections - self.connections // 4)


@dataclass(slots=True, eq=False)
class Place:
    """The place of one connection. `close` must close the connection at once.

    `since` is when its head began. `head_bytes` is the number of bytes up to the end of its head, with those of
    the body that came with them, until the body is complete. `unread` is the number of bytes of its answers
    since the peer last began a request.
    """

    peer: str
    close: Callable[[], None]
    stage: Stage = Stage.HEAD
    since: float = 0.0
    head_bytes: int = 0
    unread: int = 0


@dataclass(slots=True)
class _Queues:
    """The places of connections by stage. In each stage, in the order in which they entered it.

    `answered` are those with unread bytes, `unread` in all.
    """

    places: int = 0
    unread: int = 0
    answered: dict[Place, None] = field(default_factory=dict)
    of: dict[Stage, dict[Place, None]] = field(
        default_factory=lambda: {stage: {} for stage in Stage if stage is not Stage.SERVED}
    )

    def remove(self, place: Place) -> None:
        if place.stage is not Stage.SERVED:
            self.of[place.stage].pop(place, None)

    def add(self, place: Place) -> None:
        if place.stage is not Stage.SERVED:
            self.of[place.stage][place] = None

    def oldest(self, *stages: Stage) -> Place | None:
        firsts = [first for one in stages if (first := next(iter(self.of[one]), None))]
        return min(firsts, key=lambda place: place.since, default=None)

    def next_to_evict(self) -> Place | None:
        return self.oldest(Stage.HEAD, Stage.BODY) or self.oldest(Stage.IDLE)


class Places:
    """All places of one listener. Times are those of the event loop's clock."""

    def __init__(self, limits: PlaceLimits) -> None:
        self._limits = limits
        self._taken: set[Place] = set()
        self._all = _Queues()
        self._peers: dict[str, _Queues] = {}
        self._head_bytes = 0
        self._alarm: asyncio.TimerHandle | None = None
        self._all_arrived: asyncio.Event | None = None
        self._emptied: asyncio.Event | None = None

    def __len__(self) -> int:
        """Return how many places are taken."""
        return len(self._taken)

    def take(self, host: str, close: Callable[[], None]) -> Place | None:
        """Return a place for a new connection from `host`, or None if there is none left.

        If there is none left, closes another connection: one of the same peer, if that peer has as
        many as one peer may have.
        """
        name = peer_of(host)
        peer = self._peers.get(name) or _Queues()
        if peer.places >= self._limits.of_one_peer:
            if not self._evict_one(peer):
                return None
        elif len(self._taken) >= self._limits.connections and not self._evict_one(self._all):
            return None
        place = Place(name, close)
        # Looked up again, because the place that was freed may have been the peer's last one.
        self._peers.setdefault(name, peer).places += 1
        self._taken.add(place)
        self.move(place, Stage.HEAD)
        return place

    def move(self, place: Place, stage: Stage) -> None:
        """Record how far the connection's request has come. Moving to HEAD restarts the time of the head."""
        if place not in self._taken:
            return
        queues = (self._all, self._peers[place.peer])
        for queue in queues:
            queue.remove(place)
        place.stage = stage
        if stage is not Stage.BODY:
            self._head_bytes -= place.head_bytes
            place.head_bytes = 0
        if stage is Stage.HEAD:
            place.since = asyncio.get_running_loop().time()
        for queue in queues:
            queue.add(place)
        if stage is Stage.HEAD:
            self._set_alarm()
        elif self._all_arrived is not None and not self._is_any_arriving():
            self._all_arrived.set()

    def count_bytes(self, place: Place, size: int) -> None:
        """Record that `size` bytes arrived."""
        if place.stage is Stage.IDLE:
            self._forget_answers(place)
            self.move(place, Stage.HEAD)
        if place.stage is not Stage.HEAD or place not in self._taken:
            return
        place.head_bytes += size
        self._head_bytes += size
        while self._head_bytes > self._limits.heads_together:
            oldest = self._all.oldest(Stage.HEAD, Stage.BODY)
            if oldest is None:
                return
            self._close(oldest)

    def count_answer(self, place: Place, size: int) -> None:
        """Record that `size` bytes of an answer are about to be written.

        If there are too many unread bytes, closes the oldest connections of the peer that has most of them. An
        honest peer reads within some round trips, so that its connections are not the oldest.
        """
        if place not in self._taken or not size:
            return
        place.unread += size
        for queue in (self._all, self._peers[place.peer]):
            queue.unread += size
            queue.answered[place] = None
        while self._all.unread > self._limits.answers_together:
            most = max(self._peers.values(), key=lambda peer: peer.unread)
            self._close(next(iter(most.answered)))

    def _forget_answers(self, place: Place) -> None:
        if place.unread:
            for queue in (self._all, self._peers[place.peer]):
                queue.unread -= place.unread
                del queue.answered[place]
            place.unread = 0

    def leave(self, place: Place) -> None:
        """Free the place. Idempotent."""
        if place not in self._taken:
            return
        self.move(place, Stage.SERVED)
        self._forget_answers(place)
        self._taken.remove(place)
        peer = self._peers[place.peer]
        peer.places -= 1
        if not peer.places:
            del self._peers[place.peer]
        if not self._taken and self._emptied is not None:
            self._emptied.set()

    async def arrived(self, patience: Seconds) -> None:
        """Wait at most `patience` seconds until the request of each open connection has arrived."""
        self._all_arrived = asyncio.Event()
        if self._is_any_arriving():
            with suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    await self._all_arrived.wait()

    def _is_any_arriving(self) -> bool:
        return bool(self._all.of[Stage.HEAD] or self._all.of[Stage.BODY])

    async def empty(self, patience: Seconds) -> None:
        """Wait at most `patience` seconds until all places are free, then close the other connections."""
        self._emptied = asyncio.Event()
        if self._taken:
            await asyncio.wait({asyncio.ensure_future(self._emptied.wait())}, timeout=patience)
        for place in list(self._taken):
            self._close(place)
        if self._alarm is not None:
            self._alarm.cancel()

    def _evict_one(self, among: _Queues) -> bool:
        """Close the next connection to evict. Return False if all of them are being served."""
        chosen = among.next_to_evict()
        if chosen is None:
            return False
        self._close(chosen)
        return True

    def _close(self, place: Place) -> None:
        self.leave(place)
        place.close()

    def _set_alarm(self) -> None:
        """Set the timer for the oldest head. One timer is enough, since heads expire in their order."""
        if self._alarm is None and (oldest := self._all.oldest(Stage.HEAD)) is not None:
            due = oldest.since + self._limits.head
            self._alarm = asyncio.get_running_loop().call_at(due, self._close_late)

    def _close_late(self) -> None:
        self._alarm = None
        begun_before = asyncio.get_running_loop().time() - self._limits.head
        while (oldest := self._all.oldest(Stage.HEAD)) is not None:
            if oldest.since > begun_before:
                break
            self._close(oldest)
        self._set_alarm()


def peer_of(host: str) -> str:
    """Return the peer as which a host counts: its IPv4 address, or its IPv6 network of 64 bits."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, _V6_NETWORK), strict=False))
