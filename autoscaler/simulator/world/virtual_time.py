"""An event loop whose time jumps to the next timer. Hours pass in milliseconds, in a fixed order."""

import asyncio
import selectors
from collections.abc import Coroutine
from contextvars import ContextVar
from typing import Any, TypeVar

from autoscaler.model.identifiers import Instant, Seconds

T = TypeVar("T")

EPOCH: Instant = 1_800_000_000.0


class Tasks:
    """The tasks of one process, in the order in which they began. The order of a set would be random."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[Any]] = []
        self._pruned_at = 64

    def add(self, task: asyncio.Task[Any]) -> None:
        """Add a task, and sometimes drop those that are done."""
        self._tasks.append(task)
        if len(self._tasks) >= self._pruned_at:
            self._tasks = self.unfinished()
            self._pruned_at = 2 * len(self._tasks) + 64

    def unfinished(self) -> list[asyncio.Task[Any]]:
        """Return the tasks that are not done, oldest first."""
        return [task for task in self._tasks if not task.done()]


OWNER: ContextVar[Tasks | None] = ContextVar("OWNER", default=None)
"""The list for tasks started in this context: those of one process, which are killed with it."""


OUTSIDE_EVERY = 100
"""Jumps between two polls of real file descriptors, because a poll costs more than a jump."""


class _JumpingSelector(selectors.DefaultSelector):
    """Lets the loop's time jump instead of waiting for it."""

    now = 0.0
    _jumps = 0

    def select(self, timeout: float | None = None) -> Any:
        if timeout == 0:
            return []  # there is work at hand
        self._jumps += 1
        ready = super().select(0) if timeout is None or self._jumps % OUTSIDE_EVERY == 0 else []
        if ready:
            return ready
        if timeout is None:
            raise RuntimeError("every task waits and no timer is set")
        self.now += max(0.0, timeout)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """Runs timers in order, without waiting for real time."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)
        self.set_task_factory(_owned_task)

    def time(self) -> float:
        """Return virtual seconds since the loop was created."""
        return self._jumping.now


def _owned_task(
    loop: asyncio.AbstractEventLoop, work: Any, context: Any = None
) -> asyncio.Task[Any]:
    task = asyncio.Task(work, loop=loop, context=context)
    if (owner := OWNER.get()) is not None:
        owner.add(task)
    return task


def unowned(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Start a task that belongs to the world and not to a controller process."""
    token = OWNER.set(None)
    try:
        return asyncio.get_running_loop().create_task(work)
    finally:
        OWNER.reset(token)


class VirtualClock:
    """A Clock on the loop's virtual time."""

    def now(self) -> Instant:
        """Return virtual Unix seconds."""
        return EPOCH + asyncio.get_running_loop().time()

    async def sleep(self, seconds: Seconds) -> None:
        """Return after this much virtual time."""
        await asyncio.sleep(seconds)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end on virtual time, and cancel the tasks that it left."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)
