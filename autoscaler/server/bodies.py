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


@dataclass(slots=True)
class Bodies:
    """`limit` bytes a body, `timeout` seconds for one, `together` bytes held at any moment.

    What counts as held is what has arrived: a length that is only declared takes no room.
    """

    limit: int
    timeout: Seconds = 10.0
    together: int = 64 * MEBIBYTE
    _held: int = field(default=0, init=False)

    @asynccontextmanager
    async def read(self, request: web.Request) -> AsyncIterator[bytes]:
        """The whole body, whose room is given back in the end.

        Raises BodyRefusedError, ConnectionError when the peer left.
        """
        if request.headers.get("Content-Encoding", "identity") != "identity":
            raise BodyRefusedError("encoded")
        if (request.content_length or 0) > self.limit:
            raise BodyRefusedError("too_large")
        body = bytearray()
        try:
            await self._fill(body, request)
            yield bytes(body)
        finally:
            self._held -= len(body)

    async def _fill(self, body: bytearray, request: web.Request) -> None:
        content = request.content
        try:
            if content.is_eof():
                self._add(body, content.read_nowait())
                return
            async with asyncio.timeout(self.timeout):
                while chunk := await content.readany():
                    self._add(body, chunk)
        except TimeoutError as error:
            raise BodyRefusedError("too_slow") from error
        except web.RequestPayloadError as error:
            raise BodyRefusedError("broken") from error

    def _add(self, body: bytearray, chunk: bytes) -> None:
        if len(body) + len(chunk) > self.limit:
            raise BodyRefusedError("too_large")
        if self._held + len(chunk) > self.together:
            raise BodyRefusedError("busy")
        body += chunk
        self._held += len(chunk)
