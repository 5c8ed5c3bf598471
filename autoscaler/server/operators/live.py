"""Notifies open pages of the console of changes of the fleet, by server-sent events.

Sends no data: a page that gets an event loads itself again. A slow reader skips events, so none queue up.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress

from aiohttp import web

from autoscaler.model.identifiers import Seconds

MOST_STREAMS = 64
"""Maximum number of open streams. A page without one loads itself again every 15 seconds."""

EVERY: Seconds = 2.0
"""Minimum time between two events."""

AT_LEAST_EVERY: Seconds = 15.0
"""Maximum time between two events: ages on a page change even if the fleet does not."""


class Live:
    """The streams of all open pages, at most `most`.

    `changes` returns a number that grows with each change of the fleet.
    """

    def __init__(
        self, changes: Callable[[], int], every: Seconds = EVERY, most: int = MOST_STREAMS
    ) -> None:
        self._changes = changes
        self._every = every
        self._most = most
        self._streams = 0
        self._closed = asyncio.Event()

    async def stream(
        self, request: web.Request, headers: Mapping[str, str], is_valid: Callable[[], bool]
    ) -> web.StreamResponse:
        """Send events until the reader leaves, `is_valid` returns False, or the listener stops."""
        if self._closed.is_set() or self._streams >= self._most:
            return web.Response(status=503, headers={**headers, "Retry-After": "15"})
        self._streams += 1
        try:
            answer = web.StreamResponse(
                headers={
                    **headers,
                    "Content-Type": "text/event-stream",
                    "Cache-Control": "no-store",
                    # nginx would hold events back until its buffer is full.
                    "X-Accel-Buffering": "no",
                }
            )
            answer.force_close()
            await answer.prepare(request)
            loop = asyncio.get_running_loop()
            seen, sent_at = self._changes(), loop.time()
            with suppress(ConnectionError):
                await answer.write(b"retry: 5000\n\n")
                while not await self._closes():
                    now = self._changes()
                    if now == seen and loop.time() - sent_at < AT_LEAST_EVERY:
                        continue
                    if not is_valid():
                        break
                    seen, sent_at = now, loop.time()
                    await answer.write(b"event: changed\ndata:\n\n")
            return answer
        finally:
            self._streams -= 1

    async def close(self, _: web.Application) -> None:
        """End all streams."""
        self._closed.set()

    async def _closes(self) -> bool:
        """Wait for `EVERY` seconds, or until the streams end. Return whether they end."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._every):
                await self._closed.wait()
        return self._closed.is_set()
