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
    arriving: dict["_Body", None] = field(default_factory=dict, init=False)
    """The incomplete bodies, the oldest first."""

    def read(self, request: web.Request) -> "_Body":
        """Return a context that reads the whole body and frees its memory at the end.

        Raises: BodyRefusedError on entry, ConnectionError if the peer disconnected.
        """
        return _Body(self, request)

    def reserve(self, body: "_Body", more: int) -> None:
        """Add bytes of a body to the total. Raises: BodyRefusedError."""
        if body.reserved + more > self.limit:
            raise BodyRefusedError("too_large")
        while self._reserved + more > self.together and self.arriving:
            self._drop(next(iter(self.arriving)))
        # This body may have been dropped just now, or while this chunk arrived.
        if body.dropped or self._reserved + more > self.together:
            raise BodyRefusedError("busy")
        body.reserved += more
        self._reserved += more

    def release(self, body: "_Body") -> None:
        """Subtract a body's bytes from the total."""
        self._reserved -= body.reserved
        body.reserved = 0

    def _drop(self, body: "_Body") -> None:
        del self.arriving[body]
        body.dropped = True
        self.release(body)
        body.arrived.clear()
        if body.patience is not None and not body.patience.expired():
            body.patience.reschedule(asyncio.get_running_loop().time())


@dataclass(slots=True, eq=False)
class _Body:
    """The context of `Bodies.read`. A context manager made from a generator is 5 us slower per delivery.

    Has the bytes that arrived so far, and the timer for the rest. `reserved` is the number of its bytes in the
    total. `dropped` is set when another body took its memory.
    """

    bodies: Bodies
    request: web.Request
    arrived: bytearray = field(default_factory=bytearray)
    reserved: int = 0
    patience: asyncio.Timeout | None = None
    dropped: bool = False

    async def __aenter__(self) -> bytes:
        try:
            return await self._fill()
        except BaseException:
            self.bodies.release(self)
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.bodies.release(self)

    async def _fill(self) -> bytes:
        if self.request.headers.get("Content-Encoding", "identity") != "identity":
            raise BodyRefusedError("encoded")
        if (self.request.content_length or 0) > self.bodies.limit:
            raise BodyRefusedError("too_large")
        content = self.request.content
        try:
            if not content.is_eof():
                return await self._wait_for(content)
            # Most bodies have arrived completely: those need neither a timer nor a copy.
            whole = content.read_nowait()
        except web.RequestPayloadError as error:
            raise BodyRefusedError("broken") from error
        self.bodies.reserve(self, len(whole))
        return whole

    async def _wait_for(self, content: StreamReader) -> bytes:
        try:
            async with asyncio.timeout(self.bodies.timeout) as self.patience:
                self.bodies.arriving[self] = None
                while chunk := await content.readany():
                    self.bodies.reserve(self, len(chunk))
                    self.arrived += chunk
                self.bodies.reserve(self, 0)
                return bytes(self.arrived)
        except TimeoutError as error:
            raise BodyRefusedError("busy" if self.dropped else "too_slow") from error
        finally:
            self.bodies.arriving.pop(self, None)
