"""Runs work once for all concurrent callers that need its result.

Keeps no result. All waiting callers get the same error, so that an outage of GitHub costs one
request instead of one for each machine.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")


class SingleFlight(Generic[Result]):
    """Running work, by key. Cancelling a waiting caller does not cancel the work."""

    def __init__(self) -> None:
        self._flights: dict[str, asyncio.Task[Result]] = {}

    async def run(self, key: str, work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """Return the result of the work for `key`. Starts it if it is not running."""
        return await asyncio.shield(self.start(key, work))

    def start(
        self, key: str, work: Callable[[], Coroutine[Any, Any, Result]]
    ) -> "asyncio.Task[Result]":
        """Return the running work for `key`, without waiting for it. Starts it if necessary."""
        task = self._flights.get(key)
        if task is None:
            task = asyncio.create_task(work())
            self._flights[key] = task
            task.add_done_callback(lambda done: self._finish(key, done))
        return task

    async def close(self) -> None:
        """Cancel all work, and wait until it has ended. Idempotent."""
        tasks = list(self._flights.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _finish(self, key: str, task: "asyncio.Task[Result]") -> None:
        self._flights.pop(key, None)
        if not task.cancelled():
            # Without this, asyncio logs an unread error if all waiting callers were cancelled.
            task.exception()
