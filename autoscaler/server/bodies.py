"""Reads request bodies within limits: bytes per body, bytes of all bodies, and time."""

import asyncio
from dataclasses import dataclass, field
from types import TracebackType

from aiohttp import StreamReader, web

from autoscaler.model.identifiers import Seconds

MEBIBYTE = 2**20


REFUSED = {"too_large": 413, "too_slow": 408, "encoded": 415, "broken": 400, "busy": 503}
"""The HTTP status of each reason to refuse a body."""


class BodyRefusedError(Exception):
    """The body was not read. `reason` is a key of REFUSED."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(slots=True, eq=False)
class _Body:
    """A body that is being read: its bytes so far, and the timer for the rest.

    `reserved` is the number of its bytes in the total. `dropped` is set when another body took its memory.
    """

    arrived: bytearray = field(default_factory=bytearray)
    reserved: int = 0
    patience: asyncio.Timeout | None = None
    dropped: bool = False


@dataclass(slots=True)
class Bodies:
    """Reads bodies of at most `limit` bytes and `timeout` seconds, `together` bytes in memory at once.

    Only received bytes count, not a declared length. When `together` is reached, the oldest incomplete
    body is dropped: honest bodies arrive within milliseconds, and slow senders must not block them.
    """

    limit: int
    timeout: Seconds = 10.0
    together: int = 64 * MEBIBYTE
    _reserved: int = field(default=0, init=False)
    _arriving: dict[_Body, None] = field(default_factory=dict, init=False)

    def read(self, request: web.Request) -> "_Reading":
        """Return a context that reads the whole body and frees its memory at the end.

        Raises: BodyRefusedError on entry, ConnectionError if the peer disconnected.
        """
        return _Reading(self, request)

    async def fill(self, body: _Body, request: web.Request) -> bytes:
        """Return the body, and reserve memory for it. Raises: as the context of `read`."""
        if request.headers.get("Content-Encoding", "identity") != "identity":
            raise BodyRefusedError("encoded")
        if (request.content_length or 0) > self.limit:
            raise BodyRefusedError("too_large")
        if not request.content.is_eof():
            return await self._wait_for(body, request.content)
        # Most bodies have arrived completely: those need neither a timer nor a copy.
        whole = _read(request.content)
        self._reserve(body, len(whole))
        return whole

    def release(self, body: _Body) -> None:
        """Subtract a body's bytes from the total."""
        self._reserved -= body.reserved
        body.reserved = 0

    async def _wait_for(self, body: _Body, content: StreamReader) -> bytes:
        try:
            async with asyncio.timeout(self.timeout) as body.patience:
                self._arriving[body] = None
                while chunk := await content.readany():
                    self._reserve(body, len(chunk))
                    body.arrived += chunk
                self._reserve(body, 0)
                return bytes(body.arrived)
        except TimeoutError as error:
            raise BodyRefusedError("busy" if body.dropped else "too_slow") from error
        except web.RequestPayloadError as error:
            raise BodyRefusedError("broken") from error
        finally:
            self._arriving.pop(body, None)

    def _reserve(self, body: _Body, more: int) -> None:
        if body.reserved + more > self.limit:
            raise BodyRefusedError("too_large")
        while self._reserved + more > self.together and self._arriving:
            self._drop(next(iter(self._arriving)))
        # This body may have been dropped just now, or while this chunk arrived.
        if body.dropped or self._reserved + more > self.together:
            raise BodyRefusedError("busy")
        body.reserved += more
        self._reserved += more

    def _drop(self, body: _Body) -> None:
        del self._arriving[body]
        body.dropped = True
        self.release(body)
        body.arrived.clear()
        if body.patience is not None and not body.patience.expired():
            body.patience.reschedule(asyncio.get_running_loop().time())


@dataclass(slots=True)
class _Reading:
    """The context of `Bodies.read`. A context manager made from a generator is 5 us slower per delivery."""

    bodies: Bodies
    request: web.Request
    body: _Body = field(default_factory=_Body)

    async def __aenter__(self) -> bytes:
        try:
            return await self.bodies.fill(self.body, self.request)
        except BaseException:
            self.bodies.release(self.body)
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.bodies.release(self.body)


def _read(content: StreamReader) -> bytes:
    try:
        return content.read_nowait()
    except web.RequestPayloadError as error:
        raise BodyRefusedError("broken") from error
