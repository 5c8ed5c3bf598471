"""One listening address: accepts connections, with TLS and limits on connections and headers.

Its sockets can stay open while a controller restarts within its process. The kernel accepts connections
meanwhile, and they wait for the next listener on the same address.
"""

import asyncio
import errno
import logging
import socket
from collections.abc import Collection, Sequence
from typing import Any

import structlog
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from autoscaler.model.identifiers import Address, Seconds
from autoscaler.server.answers import json_errors
from autoscaler.server.listening.certificate import Certificate, CertificateError
from autoscaler.server.listening.connection import Connection, serve_in_place, without_server_header
from autoscaler.server.listening.passed_on import Secret, recognizing
from autoscaler.server.listening.places import PlaceLimits, Places
from autoscaler.server.listening.settings import ServerSettings, TlsFiles
from autoscaler.server.refusal_log import RefusalLog

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


_LAST_ARRIVALS: Seconds = 0.5
"""How long a stop waits for requests whose connection is open already. GitHub repeats none of them, and aiohttp
reads nothing more once it shuts down."""

_LAST_BYTES: Seconds = 2.0
_LINGERING: Seconds = 2.0
_ACCEPTED_AT_ONCE = 64
_PAUSE: Seconds = 1.0
_OUT_OF_RESOURCES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_READ_BUFFER = 64 * 1024
"""Bytes. A workflow_job body fits, so that most requests have arrived completely when they are handled."""

_MAX_LINE = 2_048
_MAX_HEADERS = 40
"""GitHub sends 15 headers with at most 90 bytes each. A proxy adds some."""

_log = structlog.get_logger(__name__)

_MENDS = {
    errno.EADDRINUSE: "another process listens there, which ss -ltnp shows: end it, or use another port",
    errno.EACCES: "a port below 1024 needs CAP_NET_BIND_SERVICE: use a higher one",
    errno.EADDRNOTAVAIL: "no interface of this host has this address: 0.0.0.0 stands for all of them",
}
"""What to do, by the error of the system."""


class ListenError(Exception):
    """An address cannot be bound, or its certificate cannot be used. The message names it."""


class Listener:
    """An aiohttp application on one address. Accepts connections itself, to limit them by peer."""

    def __init__(
        self,
        app: web.Application,
        place: Place,
        tls: TlsFiles | None,
        connections: int,
        settings: ServerSettings,
        kept: KeptSockets,
        secret: Secret,
    ) -> None:
        """`connections` is the maximum number of connections."""
        app.on_response_prepare.append(without_server_header)
        self.place = place
        self._wanted = place[1]
        self._tls = tls
        self._settings = settings
        self._kept = kept
        self._secret = secret
        self._runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=settings.shutdown
        )
        self._places = Places(PlaceLimits(connections, settings.head))
        self._refusals = RefusalLog()
        self._certificate: Certificate | None = None
        self._sockets: list[socket.socket] = []
        self._opening: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> Address:
        """The bound address; before `start`, the configured one."""
        if not self._sockets:
            return self._wanted
        host, port = self._sockets[0].getsockname()[:2]
        return Address(host, port)

    async def start(self) -> None:
        """Bind the address. Connections wait until `accept`.

        Raises: ListenError.
        """
        try:
            self._certificate = None if self._tls is None else Certificate(self._tls)
        except CertificateError as error:
            raise ListenError(str(error)) from error
        await self._runner.setup()
        server = self._server()
        server.request_handler = serve_in_place(json_errors(server.request_handler))
        server.request_factory = recognizing(server.request_factory, self._secret)
        try:
            self._sockets = await self._kept.listen(self.place)
        except OSError as error:
            await self._runner.cleanup()
            mend = _MENDS.get(error.errno or 0, "")
            raise ListenError(
                f"cannot listen on {self._wanted}: {error.strerror}{mend and f'; {mend}'}"
            ) from error

    def accept(self) -> None:
        """Accept connections, also those that wait already."""
        for listening in self._sockets:
            self._resume(listening)

    def keep_listening(self) -> None:
        """Have the sockets stay open after `stop`, for the next listener at this place."""
        self._kept.keep(self.place, self._sockets)

    async def stop(self) -> None:
        """Stop accepting, let requests arrive and end, and close. Idempotent."""
        sockets, self._sockets = self._sockets, []
        if not sockets:
            return
        for listening in sockets:
            asyncio.get_running_loop().remove_reader(listening)
            self._accept(listening)  # the kernel would reset connections that wait
            listening.close()
        await self._places.arrived(_LAST_ARRIVALS)
        for task in self._opening:
            task.cancel()
        await self._runner.cleanup()
        # A peer that does not read its last bytes must not delay this.
        await self._places.empty(_LAST_BYTES)

    def _resume(self, listening: socket.socket) -> None:
        if listening.fileno() >= 0:
            asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        """Accept a few waiting connections, because an evicted one closes only one loop pass later."""
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                accepted, peer = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionError):
                return
            except OSError as error:
                if error.errno not in _OUT_OF_RESOURCES:
                    raise
                self._refusals.note("connections_not_accepted", reason=error.strerror)
                loop = asyncio.get_running_loop()
                loop.remove_reader(listening)
                loop.call_later(_PAUSE, self._resume, listening)
                return
            self._take(accepted, str(peer[0]))

    def _take(self, accepted: socket.socket, host: str) -> None:
        connection = Connection(
            self._server(),
            self._places,
            access_log=None,
            logger=_http_logger(),
            keepalive_timeout=self._settings.keepalive,
            lingering_time=_LINGERING,
            read_bufsize=_READ_BUFFER,
            auto_decompress=False,
            max_line_size=_MAX_LINE,
            max_field_size=_MAX_LINE,
            max_headers=_MAX_HEADERS,
        )
        place = self._places.take(host, connection.close_at_once)
        if place is None:
            accepted.close()
            listen = str(self._wanted)
            self._refusals.note("connections_refused", listen=listen, peer=host)
            return
        connection.place = place
        task = asyncio.get_running_loop().create_task(self._open(accepted, connection))
        connection.opening = task
        self._opening.add(task)

        def opened(_: object) -> None:
            self._opening.discard(task)
            if connection.made is None:
                # The task may have been cancelled before it started: then the socket is still open.
                self._places.leave(place)
                accepted.close()
                connection.break_cycles()

        task.add_done_callback(opened)

    async def _open(self, accepted: socket.socket, connection: Connection) -> None:
        accepted.setblocking(False)
        tls: dict[str, Any] = {}
        if self._certificate is not None:
            tls["ssl"] = self._certificate.context()
            tls["ssl_handshake_timeout"] = self._settings.head
            # After this time, the event loop drops what the peer has not read yet of the last answer.
            tls["ssl_shutdown_timeout"] = self._settings.head
        try:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            loop = asyncio.get_running_loop()
            await loop.connect_accepted_socket(lambda: connection, accepted, **tls)
        except OSError:
            # The peer disconnected, or its TLS handshake failed: not logged, since anyone can cause it.
            return

    def _server(self) -> web.Server:
        server = self._runner.server
        assert isinstance(server, web.Server)
        return server


class _WithoutRequestBytes(logging.Filter):
    """Drops log records about bytes that are not HTTP, because their text contains those bytes."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Return True if the record is logged."""
        return record.exc_info is None or not isinstance(record.exc_info[1], HttpProcessingError)


def _http_logger() -> logging.Logger:
    logger = logging.getLogger("autoscaler.server.http")
    if not any(isinstance(present, _WithoutRequestBytes) for present in logger.filters):
        logger.addFilter(_WithoutRequestBytes())
    return logger
