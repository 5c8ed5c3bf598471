"""Reading request bodies within bounds: bytes each, bytes together, and time.

Decides whether a body may be read at all; never looks into it, never decompresses it.
"""

import asyncio
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

    A body that does not declare its length counts with `limit`.
    """

    limit: int
    timeout: Seconds = 10.0
    together: int = 64 * MEBIBYTE
    _held: int = field(default=0, init=False)

    def reserve(self, request: web.Request) -> int:
        """Make room; the answer is to be given to `release`. Raises BodyRefusedError."""
        if request.headers.get("Content-Encoding", "identity") != "identity":
            raise BodyRefusedError("encoded")
        declared = request.content_length
        if declared is None:
            declared = self.limit if request.body_exists else 0
        if declared > self.limit:
            raise BodyRefusedError("too_large")
        if self._held + declared > self.together:
            raise BodyRefusedError("busy")
        self._held += declared
        return declared

    def release(self, reserved: int) -> None:
        """Give the room of one body back."""
        self._held -= reserved

    async def read(self, request: web.Request) -> bytes:
        """The whole body. Raises BodyRefusedError, ConnectionError when the peer left."""
        content = request.content
        try:
            if content.is_eof():
                return self._bounded(content.read_nowait())
            async with asyncio.timeout(self.timeout):
                return await self._collect(request)
        except TimeoutError as error:
            raise BodyRefusedError("too_slow") from error
        except web.RequestPayloadError as error:
            raise BodyRefusedError("broken") from error

    async def _collect(self, request: web.Request) -> bytes:
        chunks = bytearray()
        while chunk := await request.content.readany():
            chunks += chunk
            if len(chunks) > self.limit:
                raise BodyRefusedError("too_large")
        return bytes(chunks)

    def _bounded(self, body: bytes) -> bytes:
        if len(body) > self.limit:
            raise BodyRefusedError("too_large")
        return body
