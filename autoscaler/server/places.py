"""Counts a listener's connections, and picks the one that gives way when there are too many.

A connection is incomplete while its TLS handshake, its first request's head or its body is
under way. A stranger can make any number of those, so they make room for new ones; a connection
that is served or idle never does. It knows no socket: who takes a place says how to close it.
"""

import asyncio
import ipaddress
from collections.abc import Callable
from dataclasses import dataclass, field

from autoscaler.model.identifiers import Seconds

HEADS_TOGETHER = 32 * 2**20
"""Bytes of incomplete heads that a listener holds at any moment; parsed, they take three times that."""

_V6_NETWORK = 64


@dataclass(frozen=True, slots=True)
class PlaceLimits:
    """How many connections there may be, and how many seconds a handshake or a head may take."""

    connections: int
    head: Seconds
    heads_together: int = HEADS_TOGETHER

    @property
    def of_one_peer(self) -> int:
        """Three quarters: an address behind which a whole fleet or a proxy stands is served too."""
        return max(1, self.connections - self.connections // 4)


@dataclass(slots=True, eq=False)
class _Peer:
    places: int = 0
    incomplete: "dict[Place, None]" = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Place:
    """One connection's. `close` must close the connection at once."""

    places: "Places"
    peer: str
    close: Callable[[], None]
    since: float = 0.0
    held: int = 0
    body: bool = False

    def begin(self) -> None:
        """Note that a handshake or a head begins now."""
        self.places.begin(self)

    def hear(self, size: int) -> None:
        """Note that bytes came in: of a head, unless a request is being read or served."""
        self.places.hear(self, size)

    def begin_body(self) -> None:
        """Note that the head is complete. The body's reader has a time limit of its own."""
        self.body = True
        self.places.let_go(self)

    def serve(self) -> None:
        """Note that the request is complete: from now on this connection does not give way."""
        self.places.serve(self)

    def rest(self) -> None:
        """Note that the request was answered: the next bytes begin another head."""
        self.places.rest(self)

    def leave(self) -> None:
        """Give the place back. Idempotent."""
        self.places.leave(self)


class Places:
    """All places of one listener, by the loop's time."""

    def __init__(self, limits: PlaceLimits) -> None:
        self._limits = limits
        self._taken: set[Place] = set()
        self._peers: dict[str, _Peer] = {}
        self._incomplete: dict[Place, None] = {}
        self._idle: set[Place] = set()
        self._held = 0
        self._alarm: asyncio.TimerHandle | None = None
        self._emptied: asyncio.Event | None = None

    def __len__(self) -> int:
        """How many are taken."""
        return len(self._taken)

    def take(self, host: str, close: Callable[[], None]) -> Place | None:
        """Return a place for a new connection from `host`, or None if there is none left.

        Where there is none left, the oldest incomplete connection is closed: one of the same peer
        where that peer has as many as one may have.
        """
        name = peer_of(host)
        peer = self._peers.get(name) or _Peer()
        if peer.places >= self._limits.of_one_peer:
            if not _close_oldest(peer.incomplete):
                return None
        elif len(self._taken) >= self._limits.connections and not _close_oldest(self._incomplete):
            return None
        place = Place(self, name, close)
        # Looked up again: the peer's last place may have been the one that gave way.
        self._peers.setdefault(name, peer).places += 1
        self._taken.add(place)
        self.begin(place)
        return place

    def begin(self, place: Place) -> None:
        """See `Place.begin`."""
        if place not in self._taken:
            return
        place.since = asyncio.get_running_loop().time()
        self._idle.discard(place)
        for incomplete in (self._incomplete, self._peers[place.peer].incomplete):
            incomplete.pop(place, None)
            incomplete[place] = None
        self._set_alarm()

    def hear(self, place: Place, size: int) -> None:
        """See `Place.hear`."""
        if place in self._idle:
            self.begin(place)
        if place.body or place not in self._incomplete:
            return
        place.held += size
        self._held += size
        while self._held > self._limits.heads_together and _close_oldest(self._incomplete):
            pass

    def let_go(self, place: Place) -> None:
        """Count this head's bytes no longer."""
        self._held -= place.held
        place.held = 0

    def serve(self, place: Place) -> None:
        """See `Place.serve`."""
        place.body = False
        self.let_go(place)
        self._complete(place)

    def rest(self, place: Place) -> None:
        """See `Place.rest`."""
        self.serve(place)
        if place in self._taken:
            self._idle.add(place)

    def leave(self, place: Place) -> None:
        """See `Place.leave`."""
        if place not in self._taken:
            return
        self.serve(place)
        self._idle.discard(place)
        self._taken.remove(place)
        peer = self._peers[place.peer]
        peer.places -= 1
        if not peer.places:
            del self._peers[place.peer]
        if not self._taken and self._emptied is not None:
            self._emptied.set()

    async def empty(self, patience: Seconds) -> None:
        """Wait until all have left; close those that have not within `patience` seconds."""
        self._emptied = asyncio.Event()
        if self._taken:
            await asyncio.wait({asyncio.ensure_future(self._emptied.wait())}, timeout=patience)
        for place in list(self._taken):
            _close(place)
        if self._alarm is not None:
            self._alarm.cancel()

    def _complete(self, place: Place) -> None:
        self._incomplete.pop(place, None)
        if (peer := self._peers.get(place.peer)) is not None:
            peer.incomplete.pop(place, None)

    def _set_alarm(self) -> None:
        """One for all: they fall due in the order in which they began."""
        if self._alarm is not None:
            return
        oldest = next((place for place in self._incomplete if not place.body), None)
        if oldest is not None:
            due = oldest.since + self._limits.head
            self._alarm = asyncio.get_running_loop().call_at(due, self._close_late)

    def _close_late(self) -> None:
        self._alarm = None
        begun_before = asyncio.get_running_loop().time() - self._limits.head
        for place in [one for one in self._incomplete if not one.body]:
            if place.since > begun_before:
                break
            _close(place)
        self._set_alarm()


def peer_of(host: str) -> str:
    """Return what connections are counted by: an IPv4 address, or an IPv6 network of 64 bits."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, _V6_NETWORK), strict=False))


def _close_oldest(incomplete: dict[Place, None]) -> bool:
    """Return False where there is none."""
    oldest = next(iter(incomplete), None)
    if oldest is None:
        return False
    _close(oldest)
    return True


def _close(place: Place) -> None:
    place.leave()
    place.close()
