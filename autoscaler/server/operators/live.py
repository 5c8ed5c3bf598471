"""Notifies open pages of the console of changes of the fleet, by server-sent events.

Sends no data: a page that gets an event loads itself again. One task serves all streams, and a slow reader
skips events, so that nothing queues up.
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
        self._closing = False
        self._task: asyncio.Task[None] | None = None
        self._next: asyncio.Future[None] | None = None

    async def stream(
        self, request: web.Request, headers: Mapping[str, str], is_valid: Callable[[], bool]
    ) -> web.StreamResponse:
        """Send events until the reader leaves, `is_valid` returns False, or the listener stops."""
        if not self._is_open() or self._streams >= self._most:
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
            with suppress(ConnectionError):
                await answer.write(b"retry: 5000\n\n")
                await self._wait()
                while self._is_open() and is_valid():
                    await answer.write(b"event: changed\ndata:\n\n")
                    await self._wait()
            return answer
        finally:
            self._streams -= 1
            self._stop_if_unused()

    async def close(self, _: web.Application) -> None:
        """End all streams."""
        self._closing = True
        self._wake()

    async def _wait(self) -> None:
        """Wait for the next event."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._watch())
        await asyncio.shield(self._next)

    async def _watch(self) -> None:
        """Wake all streams when the fleet changed, at most every `EVERY` and at least every 15 seconds."""
        loop = asyncio.get_running_loop()
        seen, sent_at = self._changes(), loop.time()
        while True:
            await asyncio.sleep(self._every)
            now = self._changes()
            if now != seen or loop.time() - sent_at >= AT_LEAST_EVERY:
                seen, sent_at = now, loop.time()
                self._wake()

    def _is_open(self) -> bool:
        return not self._closing

    def _stop_if_unused(self) -> None:
        if not self._streams and self._task is not None:
            self._task.cancel()
            self._task = None

    def _wake(self) -> None:
        waiting, self._next = self._next, None
        if waiting is not None and not waiting.done():
            waiting.set_result(None)
