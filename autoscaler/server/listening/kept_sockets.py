"""Listening sockets that stay open while a controller restarts within its process.

The kernel accepts connections meanwhile, and they wait for the next listener on the same address.
"""

import asyncio
import socket
from collections.abc import Collection, Sequence

from autoscaler.server.listening.settings import Address

_BACKLOG = 4_096
"""Connections that wait for `accept`: the machines of a large fleet connect at once after a start.

The kernel allows `net.core.somaxconn`, which is 4,096 by default (Linux, tcp(7) and listen(2)).
"""


Place = tuple[str, Address]
"""The key that configures a listener, and its address. Port 0 means any free port, so two may be equal."""


class KeptSockets:
    """The sockets that are kept, by the place that had them."""

    def __init__(self) -> None:
        self._kept: dict[Place, list[socket.socket]] = {}

    async def listen(self, place: Place) -> list[socket.socket]:
        """Return a listening socket for each address of the host: those kept for it, or else new ones.

        The caller closes them. Raises: OSError.
        """
        kept = self._kept.get(place)
        return await _listen(place[1]) if kept is None else [one.dup() for one in kept]

    def keep(self, place: Place, sockets: Sequence[socket.socket]) -> None:
        """Keep sockets open that `listen` returned, after their owner closes them."""
        self._close(self._kept.pop(place, ()))
        self._kept[place] = [one.dup() for one in sockets]

    def make_room(self, places: Collection[Place]) -> None:
        """Close what has a port that one of these places needs: no other socket can be bound to it."""
        ports = {address.port for _, address in set(places) - self._kept.keys()}
        for place in self._kept.keys() - set(places):
            if self._kept[place][0].getsockname()[1] in ports:
                self._close(self._kept.pop(place))

    def close(self) -> None:
        """Close what is kept."""
        for sockets in self._kept.values():
            self._close(sockets)
        self._kept.clear()

    @staticmethod
    def _close(sockets: Sequence[socket.socket]) -> None:
        for one in sockets:
            one.close()


async def _listen(address: Address) -> list[socket.socket]:
    """Return a new listening socket for each address of the host.

    Raises: OSError.
    """
    found = await asyncio.get_running_loop().getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, name in dict.fromkeys(found):
            listening = socket.socket(family, kind, protocol)
            sockets.append(listening)
            listening.setblocking(False)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listening.bind(name)
            listening.listen(_BACKLOG)
    except OSError:
        for listening in sockets:
            listening.close()
        raise
    return sockets
