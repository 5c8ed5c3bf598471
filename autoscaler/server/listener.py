"""One listening address: its TLS, its bounds on connections and headers, its end.

Decides which connections are taken; what is asked over them is the endpoints' matter.
"""

import asyncio
import logging
import ssl
from contextlib import suppress
from dataclasses import dataclass

import structlog
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from autoscaler.model.identifiers import Seconds
from autoscaler.server.settings import Address, TlsFiles

_HANDSHAKE: Seconds = 10.0
_TLS_GOODBYE: Seconds = 2.0
_LINGERING: Seconds = 2.0
_BACKLOG = 1_024
_READ_BUFFER = 64 * 1024
"""Bytes: a workflow_job body fits, so that most requests are there whole when they are looked at."""

_LONGEST_LINE = 8_190
_MOST_HEADERS = 100

_log = structlog.get_logger(__name__)


class ListenError(Exception):
    """An address could not be bound, or its certificate not be used; the message names it."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How many connections at once; seconds that one may idle; seconds that stopping may take."""

    connections: int
    keepalive: Seconds
    shutdown: Seconds


class Listener:
    """An aiohttp application on one address."""

    def __init__(
        self, app: web.Application, address: Address, tls: TlsFiles | None, bounds: Bounds
    ) -> None:
        self._wanted = address
        self._tls = tls
        self._bounds = bounds
        self._runner = web.AppRunner(
            app,
            access_log=None,
            logger=_http_logger(),
            handler_cancellation=True,
            keepalive_timeout=bounds.keepalive,
            shutdown_timeout=bounds.shutdown,
            lingering_time=_LINGERING,
            read_bufsize=_READ_BUFFER,
            auto_decompress=False,
            max_line_size=_LONGEST_LINE,
            max_field_size=_LONGEST_LINE,
            max_headers=_MOST_HEADERS,
        )
        self._server: asyncio.Server | None = None
        self._full = False

    @property
    def address(self) -> Address:
        """Where it listens; before the start, where it is to."""
        if self._server is None or not self._server.sockets:
            return self._wanted
        host, port = self._server.sockets[0].getsockname()[:2]
        return Address(host, port)

    async def start(self) -> None:
        """Bind and listen. Raises ListenError."""
        context = None if self._tls is None else _tls_context(self._tls)
        await self._runner.setup()
        try:
            self._server = await asyncio.get_running_loop().create_server(
                self._take,
                self._wanted.host,
                self._wanted.port,
                backlog=_BACKLOG,
                ssl=context,
                ssl_handshake_timeout=None if context is None else _HANDSHAKE,
                ssl_shutdown_timeout=None if context is None else _TLS_GOODBYE,
            )
        except OSError as error:
            await self._runner.cleanup()
            raise ListenError(f"cannot listen on {self._wanted}: {error.strerror}") from error

    async def stop(self) -> None:
        """Take no more, let requests under way end, close. Idempotent."""
        if self._server is None:
            return
        server, self._server = self._server, None
        server.close()
        await self._runner.cleanup()
        # A peer that never reads its last bytes may not hold us up.
        with suppress(TimeoutError):
            async with asyncio.timeout(_TLS_GOODBYE):
                await server.wait_closed()

    def _take(self) -> asyncio.Protocol:
        server = self._runner.server
        if server is None or len(server.connections) >= self._bounds.connections:
            if not self._full:
                _log.warning("connections refused: too many", listen=str(self._wanted))
            self._full = True
            return _Refusal()
        self._full = False
        return server()


class _Refusal(asyncio.Protocol):
    """Closes its connection at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


class _WithoutStrangersBytes(logging.Filter):
    """Drops records of requests that were no HTTP: their text holds what the peer sent."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to log it."""
        return record.exc_info is None or not isinstance(record.exc_info[1], HttpProcessingError)


def _http_logger() -> logging.Logger:
    logger = logging.getLogger("autoscaler.server.http")
    if not any(isinstance(present, _WithoutStrangersBytes) for present in logger.filters):
        logger.addFilter(_WithoutStrangersBytes())
    return logger


def _tls_context(files: TlsFiles) -> ssl.SSLContext:
    """TLS 1.2 and later, the interpreter's modern ciphers, no client certificates."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(files.certificate, files.key, password=_no_password)
    except (OSError, ValueError) as error:
        raise ListenError(
            f"cannot use certificate {files.certificate} with key {files.key}: {error}"
        ) from error
    return context


def _no_password() -> str:
    """Keeps OpenSSL from asking on the terminal for the password of an encrypted key."""
    raise ValueError("the key is encrypted")
