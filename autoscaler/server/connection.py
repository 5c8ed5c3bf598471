"""One connection: aiohttp's protocol, which tells its place how far its request has come.

Decides nothing about requests, and gives nothing away: no Server header, no words of aiohttp's.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import hdrs, web

from autoscaler.server.places import Place

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Connection(web.RequestHandler):
    """Set `place` and `opening`, the task that opens it, before anything can arrive."""

    __slots__ = ("made", "opening", "place")

    place: Place
    opening: asyncio.Task[None]

    def __init__(self, server: web.Server, **options: Any) -> None:
        super().__init__(server, loop=asyncio.get_running_loop(), **options)
        self.made: asyncio.Transport | None = None

    def give_way(self) -> None:
        """Close at once, in whatever state it is."""
        if self.made is None:
            self.opening.cancel()
        else:
            self.made.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for a head; it has its time after a TLS handshake's."""
        assert hasattr(transport, "abort")  # uvloop's transports are of no class of asyncio's
        self.made = transport  # type: ignore[assignment]
        if transport.get_extra_info("ssl_object") is not None:
            self.place.begin()
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Count what comes before it is looked into."""
        self.place.hear(len(data))
        super().data_received(data)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Give the place back."""
        self.place.leave()
        super().connection_lost(exc)

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


class _Unsigned(web.Response):
    """The signal `on_response_prepare` is not sent for what was no request."""

    async def _prepare_headers(self) -> None:
        await super()._prepare_headers()
        self.headers.pop(hdrs.SERVER, None)


async def without_server_header(_: web.BaseRequest, answer: web.StreamResponse) -> None:
    """Remove what aiohttp adds: the versions of Python and of itself. For `on_response_prepare`."""
    answer.headers.pop(hdrs.SERVER, None)


def serve_in_place(handler: Handler) -> Handler:
    """Return the same handler, which tells the connection's place when a request is complete."""

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        connection = request.protocol
        assert isinstance(connection, Connection)
        place = connection.place
        if request.content.is_eof():
            place.serve()
        else:
            place.begin_body()
            request.content.on_eof(place.serve)
        try:
            return await handler(request)
        finally:
            place.rest()

    return handle
