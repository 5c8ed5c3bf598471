"""Completes the work of a request even if the peer disconnects.

A disconnect must not leave a write half done.
"""

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

from autoscaler.model.identifiers import Seconds
from autoscaler.server.refusal_log import RefusalLog

T = TypeVar("T")


class Completion:
    """Runs work that a disconnect does not cancel."""

    def __init__(self) -> None:
        self._running: dict[asyncio.Future[Any], asyncio.Future[None]] = {}
        self._moved = 0.0
        self._failures = RefusalLog()

    async def is_stuck(self, longest: Seconds, recheck: Seconds) -> bool:
        """Return True if work is running and none has ended for more than `longest` seconds.

        If the event loop itself was late, work may have ended meanwhile: waits up to `recheck` seconds for
        that. Times are those of the event loop's clock.
        """
        if not self._running or self._quiet() <= longest:
            return False
        await asyncio.wait({next(iter(self._running))}, timeout=recheck)
        return bool(self._running) and self._quiet() > longest

    async def run(self, work: Awaitable[T]) -> T:
        """Return the result of `work` or raise its error. `work` continues if the caller is cancelled.

        A coroutine becomes a task. A future needs none.
        """
        task = asyncio.ensure_future(work)
        loop = asyncio.get_running_loop()
        # Like `asyncio.shield`, but with one callback instead of three: saves 8 us per delivery.
        ended: asyncio.Future[None] = loop.create_future()
        if not self._running:
            self._moved = loop.time()
        self._running[task] = ended
        task.add_done_callback(self._end)
        try:
            await ended
        except asyncio.CancelledError:
            task.add_done_callback(self._note_failure)
            raise
        return task.result()

    async def finish(self, patience: Seconds) -> None:
        """Wait at most `patience` seconds for unfinished work, then cancel it."""
        if not self._running:
            return
        _, late = await asyncio.wait(self._running, timeout=patience)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)

    def _quiet(self) -> Seconds:
        return asyncio.get_running_loop().time() - self._moved

    def _end(self, task: asyncio.Future[Any]) -> None:
        ended = self._running.pop(task)
        self._moved = asyncio.get_running_loop().time()
        if not ended.done():
            ended.set_result(None)

    def _note_failure(self, task: asyncio.Future[Any]) -> None:
        """Log an error that no caller will receive. Strangers can cause some: a wrong proof of identity."""
        if not task.cancelled() and (error := task.exception()) is not None:
            name = type(error).__name__
            self._failures.note("request_failed_after_disconnect", name, error=name)
