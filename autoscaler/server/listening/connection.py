"""One connection: aiohttp's protocol, which reports to its `Place` how far its request has come.

Answers contain no Server header and no text of aiohttp.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import hdrs, web

from autoscaler.server.listening.places import Place, Places, Stage

_KEEPS_ALIVE = frozenset({200, 202, 204, 503})
"""Statuses after which a POST's connection stays open. The request was authenticated, or has to be repeated
(503): a machine that the controller does not know yet tries again every few seconds."""

_MAX_BYTES_BESIDE_BODY = 4 * 1024
"""Bytes besides the body that a connection may have sent since its last answer, or it is closed.

Request heads of GitHub and of the agent have at most 1,500 bytes. Bytes after the request stay in the
parser's memory while the connection idles."""

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Connection(web.RequestHandler):
    """Set `place`, and `opening` to the task that opens the connection, before bytes can arrive."""

    __slots__ = ("_places", "_received", "_stays", "made", "opening", "place")

    place: Place
    opening: asyncio.Task[None] | None

    def __init__(self, server: web.Server, places: Places, **options: Any) -> None:
        super().__init__(server, loop=asyncio.get_running_loop(), **options)
        self._places = places
        self._stays = False
        self._received = 0
        self.made: asyncio.Transport | None = None
        self.opening = None

    def close_at_once(self) -> None:
        """Close the connection at once, in any state."""
        if self.made is not None:
            self.made.abort()
        elif self.opening is not None:
            self.opening.cancel()

    def break_cycles(self) -> None:
        """Break the reference cycles, so that freeing it needs no garbage collection (see `app.event_loop`)."""
        self.made = self.opening = None
        self.place.close = _is_closed

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the time limit of the request's head, after a TLS handshake."""
        assert hasattr(transport, "abort")  # uvloop's transports are not subclasses of asyncio's
        self.made = transport  # type: ignore[assignment]
        if transport.get_extra_info("ssl_object") is not None:
            self.at(Stage.HEAD)
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Count the bytes before the parser reads them."""
        self._received += len(data)
        self._places.count_bytes(self.place, len(data))
        super().data_received(data)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Free the connection's place."""
        self._places.leave(self.place)
        super().connection_lost(exc)
        self.break_cycles()

    def at(self, stage: Stage) -> None:
        """Record how far its request has come."""
        self._places.move(self.place, stage)

    def read_body(self) -> None:
        """Record that the request is complete, unless it was already answered."""
        if self.place.stage is Stage.BODY:
            self.at(Stage.SERVED)

    def may_stay(self, body: int) -> bool:
        """Return False if the peer sent much more than a head and a body of `body` bytes.

        The parser may then hold further heads, which no limit counts.
        """
        beside, self._received = self._received - body, 0
        return beside <= _MAX_BYTES_BESIDE_BODY

    def answer(self, size: int, *, stays: bool) -> None:
        """Record that an answer of `size` bytes is about to be written, and whether the connection then stays.

        A peer has as much time to read the answer as to send a head.
        """
        self._stays = stays
        if not stays:
            self.close()
        self.at(Stage.IDLE if stays else Stage.HEAD)
        self._places.count_answer(self.place, size)

    def pause_writing(self) -> None:
        """Start the time limit of a head, because the peer does not read."""
        super().pause_writing()
        self.at(Stage.HEAD)
        if self.made is not None:
            waiting = self.made.get_write_buffer_size()
            self._places.count_answer(self.place, max(0, waiting - self.place.unread))

    def resume_writing(self) -> None:
        """Stop the time limit, because the peer reads again."""
        super().resume_writing()
        self.at(Stage.IDLE if self._stays else Stage.HEAD)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Return an answer that contains no text of the request."""
        super().handle_error(request, status, exc, message)
        answer = _WithoutServerHeader(
            status=status, body=b'{"error":"bad_request"}', content_type="application/json"
        )
        if status >= 500:
            answer.body = b'{"error":"internal_server_error"}'
        answer.force_close()
        return answer


def _is_closed() -> None:
    """Do nothing. Replaces `Place.close` after the connection is closed."""


class _WithoutServerHeader(web.Response):
    """An answer to bytes that are not HTTP. aiohttp does not send `on_response_prepare` for it."""

    async def _prepare_headers(self) -> None:
        await super()._prepare_headers()
        self.headers.pop(hdrs.SERVER, None)


async def without_server_header(_: web.BaseRequest, answer: web.StreamResponse) -> None:
    """Remove the Server header, which shows the versions of Python and aiohttp. For `on_response_prepare`."""
    answer.headers.pop(hdrs.SERVER, None)


def _size(answer: web.StreamResponse) -> int:
    """Return the bytes of an answer's body, or 0 if their number is not known at its start."""
    if not isinstance(answer, web.Response):
        return answer.content_length or 0
    return len(answer.body) if isinstance(answer.body, bytes | bytearray) else 0


def serve_in_place(handler: Handler) -> Handler:
    """Return a handler that records on the connection how far its request has come.

    Only authenticated requests, from machines and GitHub, keep their connections open. After a GET or an
    error, the connection is closed.
    """

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        connection = request.protocol
        assert isinstance(connection, Connection)
        if request.content.is_eof():
            connection.at(Stage.SERVED)
        else:
            connection.at(Stage.BODY)
            request.content.on_eof(connection.read_body)
        stays, size = False, 0
        try:
            answer = await handler(request)
            kept = connection.may_stay(request.content.total_bytes)
            if request.method != hdrs.METH_POST or answer.status not in _KEEPS_ALIVE or not kept:
                answer.force_close()
            stays, size = answer.keep_alive is not False, _size(answer)
            return answer
        finally:
            connection.answer(size, stays=stays)

    return handle
