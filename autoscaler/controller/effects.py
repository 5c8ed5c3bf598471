"""Background work of the controller: started here, waited for at the end, never lost silently.

An effect that fails in a way nobody listed is logged and ends the process: what was recorded is
resumed by the next one.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from autoscaler.model.identifiers import Seconds


class Effects:
    """Tasks in flight. `on_crash` is told the error of one that failed."""

    def __init__(self, on_crash: Callable[[BaseException], None]) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._on_crash = on_crash

    def start(self, effect: Coroutine[Any, Any, None]) -> None:
        """Run an effect in the background."""
        task = asyncio.get_running_loop().create_task(effect)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def __len__(self) -> int:
        """How many are in flight."""
        return len(self._tasks)

    async def drain(self, patience: Seconds) -> int:
        """Wait for what is in flight, then cancel the rest; how many had to be cancelled."""
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
