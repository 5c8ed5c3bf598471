"""One piece of work for all who want its result at the same time.

Decides only that; it keeps no result. A failure goes to everybody who waited for it, so that a
broken GitHub is asked once and not once for each machine.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")


class SingleFlight(Generic[Result]):
    """Work under way, by key. Cancelling one who waits does not cancel the work."""

    def __init__(self) -> None:
        self._flights: dict[str, asyncio.Task[Result]] = {}

    async def run(self, key: str, work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """The result of the work under way for `key`, which is started if there is none."""
        return await asyncio.shield(self.start(key, work))

    def start(
        self, key: str, work: Callable[[], Coroutine[Any, Any, Result]]
    ) -> "asyncio.Task[Result]":
        """Have the work for `key` under way, for nobody to wait for."""
        task = self._flights.get(key)
        if task is None:
            task = asyncio.create_task(work())
            self._flights[key] = task
            task.add_done_callback(lambda done: self._land(key, done))
        return task

    async def close(self) -> None:
        """Cancel what is under way and wait for it. Idempotent."""
        tasks = list(self._flights.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _land(self, key: str, task: "asyncio.Task[Result]") -> None:
        self._flights.pop(key, None)
        if not task.cancelled():
            # Read, so that asyncio does not complain when all who waited were cancelled.
            task.exception()
