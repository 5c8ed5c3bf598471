"""The controller's background tasks: starts effects, and waits for them at shutdown.

An effect that raises an unexpected error stops the process. The next process resumes the effect from
what was recorded.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from autoscaler.model.identifiers import Seconds

PeriodicTask = Callable[[], Coroutine[Any, Any, None]]
"""A task that runs beside the control loop until it returns or is cancelled. Raises only StoreError."""


class Effects:
    """Tasks in flight. `on_crash` is called with the error of an effect that failed."""

    def __init__(self, on_crash: Callable[[BaseException], None]) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._on_crash = on_crash

    def start(self, effect: Coroutine[Any, Any, None]) -> None:
        """Run an effect in the background."""
        task = asyncio.get_running_loop().create_task(effect)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def __len__(self) -> int:
        """Return the number of effects in flight."""
        return len(self._tasks)

    async def drain(self, patience: Seconds) -> int:
        """Wait up to `patience` seconds for effects, then cancel the rest. Return how many were cancelled."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=patience)
        left = set(self._tasks)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)
        return len(left)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_crash(error)
