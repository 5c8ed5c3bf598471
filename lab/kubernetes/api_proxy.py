"""An HTTPS proxy in front of the API server: a controller's network, and the API server's clock, on a bad day.

It has the API server's own certificate, and passes requests on as they are. Tests let it break connections
before or after a request, or change the times in the answers as an API server shows them whose clock is wrong.
"""

import asyncio
import re
import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from enum import Enum
from typing import Self

import aiohttp
from aiohttp import web

from lab.kubernetes.cluster import Cluster

_TIME = re.compile(rb'"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)((?:\.\d+)?Z)"')
_SECONDS = "%Y-%m-%dT%H:%M:%S"
_LARGEST_BODY = 1 << 24
_NOT_PASSED_ON = frozenset({"host", "accept-encoding", "content-length", "transfer-encoding"})
"""Headers of one connection, and the encoding, which would hide the times."""


class Breaks(Enum):
    """When the proxy breaks a connection."""

    NEVER = "never"
    BEFORE = "before the API server has the request"
    AFTER = "after the API server has answered"


class ApiProxy:
    """A proxy on a free port of loopback. Use it as an async context manager.

    `ahead` is by how many seconds the API server's clock seems ahead. `breaks` says when connections break; set
    it with `break_connections`.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.url = ""
        self.ahead = 0.0
        self.breaks = Breaks.NEVER
        self._cluster = cluster
        self._server = web.Server(self._pass_on, access_log=None)
        # aiohttp reads 0 as "no limit", and would wait for the end of every watch.
        self._runner = web.ServerRunner(self._server, shutdown_timeout=0.1)
        self._session: aiohttp.ClientSession

    async def __aenter__(self) -> Self:
        """Listen."""
        credentials = self._cluster.credentials
        trust = ssl.create_default_context(cafile=str(credentials.ca))
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=trust, limit=0),
            # A watch lasts as long as the API server wants.
            timeout=aiohttp.ClientTimeout(total=None),
        )
        own = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        own.load_cert_chain(credentials.certificate, credentials.key)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=own).start()
        self.url = f"https://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        """Break all connections and stop listening."""
        self.break_connections(Breaks.BEFORE)
        await self._runner.cleanup()
        await self._session.close()

    def break_connections(self, when: Breaks) -> None:
        """Break the connections that exist, and all later ones at this point of a request."""
        self.breaks = when
        for connection in self._server.connections:
            _abort(connection.transport)

    async def _pass_on(self, request: web.BaseRequest) -> web.StreamResponse:
        if self.breaks is Breaks.BEFORE:
            return _broken(request)
        headers = {k: v for k, v in request.headers.items() if k.lower() not in _NOT_PASSED_ON}
        url = f"{self._cluster.url}{request.rel_url}"
        body = await request.content.read(_LARGEST_BODY) if request.can_read_body else None
        try:
            async with self._session.request(
                request.method, url, headers=headers, data=body
            ) as answer:
                return await self._answer(request, answer)
        except aiohttp.ClientError:
            return _broken(request)

    async def _answer(
        self, request: web.BaseRequest, found: aiohttp.ClientResponse
    ) -> web.StreamResponse:
        ahead = timedelta(seconds=self.ahead)
        kept = ("Content-Type", "Retry-After")
        headers = {name: found.headers[name] for name in kept if name in found.headers}
        headers["Date"] = format_datetime(datetime.now(UTC) + ahead, usegmt=True)
        if request.query.get("watch") != "true":
            content = await found.read()
            if self.breaks is Breaks.AFTER:
                return _broken(request)
            return web.Response(status=found.status, headers=headers, body=_moved(content, ahead))
        answer = web.StreamResponse(status=found.status, headers=headers)
        await answer.prepare(request)
        rest = b""
        async for piece in found.content.iter_any():
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                await answer.write(_moved(line, ahead) + b"\n")
        await answer.write_eof(_moved(rest, ahead))
        return answer


def _broken(request: web.BaseRequest) -> web.StreamResponse:
    """Break the connection of a request instead of answering it."""
    _abort(request.transport)
    return web.Response()


def _abort(transport: asyncio.BaseTransport | None) -> None:
    # A transport of Python 3.11.2 that is closed already has no TLS protocol to abort.
    if isinstance(transport, asyncio.WriteTransport) and not transport.is_closing():
        transport.abort()


def _moved(content: bytes, by: timedelta) -> bytes:
    """Return an answer with all of its times moved."""
    move: Callable[[re.Match[bytes]], bytes] = lambda found: _moved_time(found, by)  # noqa: E731
    return _TIME.sub(move, content) if by else content


def _moved_time(found: re.Match[bytes], by: timedelta) -> bytes:
    time = datetime.strptime(found[1].decode(), _SECONDS).replace(tzinfo=UTC) + by
    return b'"%b%b"' % (time.strftime(_SECONDS).encode(), found[2])
