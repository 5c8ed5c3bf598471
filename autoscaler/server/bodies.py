"""Reading request bodies within bounds: bytes each, bytes together, and time.

Decides whether a body may be read at all; never looks into it, never decompresses it.
"""

import asyncio
from dataclasses import dataclass, field
from types import TracebackType

from aiohttp import StreamReader, web

from autoscaler.model.identifiers import Seconds

MEBIBYTE = 2**20


class BodyRefusedError(Exception):
    """A body was not read. `reason` is too_large, too_slow, encoded, broken or busy."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(slots=True, eq=False)
class _Body:
    """What has arrived of one, and until when the rest may; `dropped` when its room was taken.

    `held` is the room that it takes: bytes.
    """

    arrived: bytearray = field(default_factory=bytearray)
    held: int = 0
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

    def read(self, request: web.Request) -> "_Reading":
        """Return a context that gives the whole body, whose room is given back in its end.

        Entering it raises BodyRefusedError, ConnectionError when the peer left.
        """
        return _Reading(self, request)

    async def fill(self, body: _Body, request: web.Request) -> bytes:
        """Return the body, whose room is `body.held`. Raises as entering `read` does."""
        if request.headers.get("Content-Encoding", "identity") != "identity":
            raise BodyRefusedError("encoded")
        if (request.content_length or 0) > self.limit:
            raise BodyRefusedError("too_large")
        if not request.content.is_eof():
            return await self._wait_for(body, request.content)
        # Most are there whole: those need neither a timer nor a copy.
        whole = _read(request.content)
        self._hold(body, len(whole))
        return whole

    def give_back(self, body: _Body) -> None:
        """Count a body's room as free."""
        self._held -= body.held
        body.held = 0

    async def _wait_for(self, body: _Body, content: StreamReader) -> bytes:
        try:
            async with asyncio.timeout(self.timeout) as body.patience:
                self._arriving[body] = None
                while chunk := await content.readany():
                    self._hold(body, len(chunk))
                    body.arrived += chunk
                self._hold(body, 0)
                return bytes(body.arrived)
        except TimeoutError as error:
            raise BodyRefusedError("busy" if body.dropped else "too_slow") from error
        except web.RequestPayloadError as error:
            raise BodyRefusedError("broken") from error
        finally:
            self._arriving.pop(body, None)

    def _hold(self, body: _Body, more: int) -> None:
        if body.held + more > self.limit:
            raise BodyRefusedError("too_large")
        while self._held + more > self.together and self._arriving:
            self._drop(next(iter(self._arriving)))
        # Dropped just now, perhaps, or while this chunk was on its way.
        if body.dropped or self._held + more > self.together:
            raise BodyRefusedError("busy")
        body.held += more
        self._held += more

    def _drop(self, body: _Body) -> None:
        del self._arriving[body]
        body.dropped = True
        self.give_back(body)
        body.arrived.clear()
        if body.patience is not None and not body.patience.expired():
            body.patience.reschedule(asyncio.get_running_loop().time())


@dataclass(slots=True)
class _Reading:
    """`Bodies.read`: a class, because a generator's context costs each delivery 5 us more."""

    bodies: Bodies
    request: web.Request
    body: _Body = field(default_factory=_Body)

    async def __aenter__(self) -> bytes:
        try:
            return await self.bodies.fill(self.body, self.request)
        except BaseException:
            self.bodies.give_back(self.body)
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.bodies.give_back(self.body)


def _read(content: StreamReader) -> bytes:
    try:
        return content.read_nowait()
    except web.RequestPayloadError as error:
        raise BodyRefusedError("broken") from error
