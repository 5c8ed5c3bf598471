"""Reading request bodies within bounds: bytes each, bytes together, and time.

Decides whether a body may be read at all; never looks into it, never decompresses it.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

from autoscaler.model.identifiers import Seconds

MEBIBYTE = 2**20


class BodyRefusedError(Exception):
    """A body was not read. `reason` is too_large, too_slow, encoded, broken or busy."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(slots=True, eq=False)
class _Body:
    """What has arrived of one, and until when the rest may; `dropped` when its room was taken."""

    arrived: bytearray = field(default_factory=bytearray)
    patience: asyncio.Timeout | None = None
    dropped: bool = False


@dataclass(slots=True)
class Bodies:
    """`limit` bytes a body, `timeout` seconds for one, `together` bytes held at any moment.

    What counts as held is what has arrived: a length that is only declared takes no room. Where
    there is none left, the body that has been arriving for longest gives up its own: whole ones
    arrive within milliseconds, and strangers who send slowly must not keep them out.
    """

    limit: int
    timeout: Seconds = 10.0
    together: int = 64 * MEBIBYTE
    _held: int = field(default=0, init=False)
    _arriving: dict[_Body, None] = field(default_factory=dict, init=False)

    @asynccontextmanager
    async def read(self, request: web.Request) -> AsyncIterator[bytes]:
        """The whole body, whose room is given back in the end.

        Raises BodyRefusedError, ConnectionError when the peer left.
        """
        if request.headers.get("Content-Encoding", "identity") != "identity":
            raise BodyRefusedError("encoded")
        if (request.content_length or 0) > self.limit:
            raise BodyRefusedError("too_large")
        body = _Body()
        try:
            await self._fill(body, request)
            yield bytes(body.arrived)
        finally:
            self._held -= len(body.arrived)

    async def _fill(self, body: _Body, request: web.Request) -> None:
        content = request.content
        try:
            if content.is_eof():
                self._add(body, content.read_nowait())
                return
            async with asyncio.timeout(self.timeout) as body.patience:
                self._arriving[body] = None
                while chunk := await content.readany():
                    self._add(body, chunk)
                self._add(body, b"")
        except TimeoutError as error:
            raise BodyRefusedError("busy" if body.dropped else "too_slow") from error
        except web.RequestPayloadError as error:
            raise BodyRefusedError("broken") from error
        finally:
            self._arriving.pop(body, None)

    def _add(self, body: _Body, chunk: bytes) -> None:
        if len(body.arrived) + len(chunk) > self.limit:
            raise BodyRefusedError("too_large")
        while self._held + len(chunk) > self.together and self._arriving:
            self._drop(next(iter(self._arriving)))
        # Dropped just now, perhaps, or while this chunk was on its way.
        if body.dropped or self._held + len(chunk) > self.together:
            raise BodyRefusedError("busy")
        body.arrived += chunk
        self._held += len(chunk)

    def _drop(self, body: _Body) -> None:
        del self._arriving[body]
        body.dropped = True
        self._held -= len(body.arrived)
        body.arrived.clear()
        if body.patience is not None and not body.patience.expired():
            body.patience.reschedule(asyncio.get_running_loop().time())
