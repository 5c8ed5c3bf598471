"""Work that goes on to its end although the peer that asked for it has left.

What is half written must not depend on a stranger's patience. Decides nothing else.
"""

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

import structlog

from autoscaler.model.identifiers import Seconds

T = TypeVar("T")

_log = structlog.get_logger(__name__)


class Completion:
    """Awaits work that a broken connection does not cancel."""

    def __init__(self) -> None:
        self._running: set[asyncio.Future[Any]] = set()

    async def run(self, work: Awaitable[T]) -> T:
        """Its result or its error; when the caller is cancelled, `work` goes on alone.

        A coroutine becomes a task; a future, which goes on by itself, costs none.
        """
        task = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_note_failure)
            raise

    async def finish(self, patience: Seconds) -> None:
        """Wait for what still runs, at most `patience` seconds, then cancel it."""
        if not self._running:
            return
        _, late = await asyncio.wait(self._running, timeout=patience)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)


def _note_failure(task: asyncio.Future[Any]) -> None:
    """Nobody is left to hear the error, so the log is."""
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.warning("request failed after its peer had left", error=type(error).__name__)
