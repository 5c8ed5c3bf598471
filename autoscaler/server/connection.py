"""One connection: aiohttp's protocol, which tells its place how far its request has come.

Decides nothing about requests, and gives nothing away: no Server header, no words of aiohttp's.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import hdrs, web

from autoscaler.server.places import Place, Places, Stage

_STAYS = frozenset({200, 202, 204, 503})
"""A POST with one of these answers was authenticated, or has to wait (503): a machine that waits for the
controller to know it tries again every few seconds."""

_KEPT_BESIDE_A_BODY = 4 * 1024
"""Bytes that a kept connection may have sent since its last answer, apart from a body: heads of GitHub and
of the agent have at most 1,500. Whatever came behind the request stays in the parser while it idles."""

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Connection(web.RequestHandler):
    """Set `place` and `opening`, the task that opens it, before anything can arrive."""

    __slots__ = ("_heard", "_places", "_stays", "made", "opening", "place")

    place: Place
    opening: asyncio.Task[None] | None

    def __init__(self, server: web.Server, places: Places, **options: Any) -> None:
        super().__init__(server, loop=asyncio.get_running_loop(), **options)
        self._places = places
        self._stays = False
        self._heard = 0
        self.made: asyncio.Transport | None = None
        self.opening = None

    def give_way(self) -> None:
        """Close at once, in whatever state it is."""
        if self.made is not None:
            self.made.abort()
        elif self.opening is not None:
            self.opening.cancel()

    def let_go(self) -> None:
        """Break its cycles, so that it needs no garbage collector (see `app.collecting`)."""
        self.made = self.opening = None
        self.place.close = _is_closed

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for a head; it has its time after a TLS handshake's."""
        assert hasattr(transport, "abort")  # uvloop's transports are of no class of asyncio's
        self.made = transport  # type: ignore[assignment]
        if transport.get_extra_info("ssl_object") is not None:
            self.at(Stage.HEAD)
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Count what comes before it is looked into."""
        self._heard += len(data)
        self._places.hear(self.place, len(data))
        super().data_received(data)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Give the place back."""
        self._places.leave(self.place)
        super().connection_lost(exc)
        self.let_go()

    def at(self, stage: Stage) -> None:
        """Note how far its request has come."""
        self._places.move(self.place, stage)

    def read_body(self) -> None:
        """Note that the request is complete, unless it was answered before that."""
        if self.place.stage is Stage.BODY:
            self.at(Stage.SERVED)

    def may_stay(self, body: int) -> bool:
        """Return False if it sent much more than a head and a body of so many bytes.

        It may hold heads that nothing counts: those that came together with an earlier request.
        """
        beside, self._heard = self._heard - body, 0
        return beside <= _KEPT_BESIDE_A_BODY

    def answer(self, *, stays: bool) -> None:
        """Note that an answer is about to be written, after which the connection stays open, or not.

        An answer that the peer does not read has as much time as a head.
        """
        self._stays = stays
        if not stays:
            self.close()
        self.at(Stage.IDLE if stays else Stage.HEAD)

    def pause_writing(self) -> None:
        """The peer does not read: from now on its connection has as much time as a head."""
        super().pause_writing()
        self.at(Stage.HEAD)

    def resume_writing(self) -> None:
        """The peer reads again."""
        super().resume_writing()
        self.at(Stage.IDLE if self._stays else Stage.HEAD)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Return an answer that repeats nothing of what was sent."""
        super().handle_error(request, status, exc, message)
        answer = _Unsigned(
            status=status, body=b'{"error":"bad_request"}', content_type="application/json"
        )
        if status >= 500:
            answer.body = b'{"error":"internal_server_error"}'
        answer.force_close()
        return answer


def _is_closed() -> None:
    """Do nothing: what `Place.close` is once its connection is closed."""


class _Unsigned(web.Response):
    """The signal `on_response_prepare` is not sent for what was no request."""

    async def _prepare_headers(self) -> None:
        await super()._prepare_headers()
        self.headers.pop(hdrs.SERVER, None)


async def without_server_header(_: web.BaseRequest, answer: web.StreamResponse) -> None:
    """Remove what aiohttp adds: the versions of Python and of itself. For `on_response_prepare`."""
    answer.headers.pop(hdrs.SERVER, None)


def serve_in_place(handler: Handler) -> Handler:
    """Return a handler that notes on the connection how far its request has come.

    Only machines and GitHub keep their connections: requests that authenticated themselves. What any
    stranger can ask for (GET) or be refused for ends the connection with its answer.
    """

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        connection = request.protocol
        assert isinstance(connection, Connection)
        if request.content.is_eof():
            connection.at(Stage.SERVED)
        else:
            connection.at(Stage.BODY)
            request.content.on_eof(connection.read_body)
        stays = False
        try:
            answer = await handler(request)
            kept = connection.may_stay(request.content.total_bytes)
            if request.method != hdrs.METH_POST or answer.status not in _STAYS or not kept:
                answer.force_close()
            stays = answer.keep_alive is not False
            return answer
        finally:
            connection.answer(stays=stays)

    return handle
