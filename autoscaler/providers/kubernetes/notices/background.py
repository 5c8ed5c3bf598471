"""Reads an endless iterator in a task of its own, and returns its items in portions."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Generic, TypeVar

from autoscaler.model.identifiers import Seconds

MOST_WAITING = 5000
"""Maximum number of items that `take` has not returned yet. Reading stops until it returns some."""

T = TypeVar("T")


class Background(Generic[T]):
    """An iterator that is read continuously, from the first `take` on."""

    def __init__(self, iterate: Callable[[], AsyncGenerator[T, None]]) -> None:
        self._iterate = iterate
        self._items: asyncio.Queue[T] = asyncio.Queue(MOST_WAITING)
        self._arrived = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def take(self, most: int, wait: Seconds) -> list[T]:
        """Return up to `most` items; wait up to `wait` seconds (real time) for the first.

        If the iterator failed, raises its error after all earlier items were returned. The next call starts
        the iterator again.
        """
        if self._task is None:
            self._task = asyncio.create_task(self._read())
        if self._items.empty():
            await self._wait(self._task, wait)
        found: list[T] = []
        while len(found) < most and not self._items.empty():
            found.append(self._items.get_nowait())
        if not found and self._task.done():
            task, self._task = self._task, None
            await task
        return found

    def put(self, item: T) -> None:
        """Add an item that did not come from the iterator. Drops it if too many wait."""
        if not self._items.full():
            self._items.put_nowait(item)
            self._arrived.set()

    async def close(self) -> None:
        """End the task. Idempotent."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            # An error of the iterator does not matter any more. A cancellation of the caller does.
            await asyncio.gather(task, return_exceptions=True)

    async def _wait(self, task: asyncio.Task[None], wait: Seconds) -> None:
        self._arrived.clear()
        arrival = asyncio.create_task(self._arrived.wait())
        try:
            await asyncio.wait({arrival, task}, timeout=wait, return_when=asyncio.FIRST_COMPLETED)
        finally:
            arrival.cancel()

    async def _read(self) -> None:
        async with aclosing(self._iterate()) as items:
            async for item in items:
                await self._items.put(item)
                self._arrived.set()
