"""An event loop whose time jumps to the next timer: hours pass in milliseconds, in one order.

It decides when timers are due and nothing else. Nothing here waits for real time.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from contextvars import ContextVar
from typing import Any, TypeVar

from autoscaler.model.identifiers import Instant, Seconds

T = TypeVar("T")

EPOCH: Instant = 1_800_000_000.0


class Tasks:
    """The tasks of one process, in the order in which they began: a set would have an order by chance."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[Any]] = []
        self._pruned_at = 64

    def add(self, task: asyncio.Task[Any]) -> None:
        """Take one more in, and now and then forget those that are over."""
        self._tasks.append(task)
        if len(self._tasks) >= self._pruned_at:
            self._tasks = self.unfinished()
            self._pruned_at = 2 * len(self._tasks) + 64

    def unfinished(self) -> list[asyncio.Task[Any]]:
        """Return those that are not over, the first one first."""
        return [task for task in self._tasks if not task.done()]


OWNER: ContextVar[Tasks | None] = ContextVar("OWNER", default=None)
"""Where tasks are noted that come from this context: those of one process, to be killed with it."""


OUTSIDE_EVERY = 100
"""Jumps between two looks at what comes from outside: a look costs more than a jump."""


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
            raise RuntimeError("everything waits, and no timer is set")
        self.now += max(0.0, timeout)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """Timers are due in their order, and at once."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)
        self.set_task_factory(_owned_task)

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._jumping.now


def _owned_task(
    loop: asyncio.AbstractEventLoop, work: Any, context: Any = None
) -> asyncio.Task[Any]:
    task = asyncio.Task(work, loop=loop, context=context)
    if (owner := OWNER.get()) is not None:
        owner.add(task)
    return task


def unowned(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Start something that belongs to the world, whoever's doing it is."""
    token = OWNER.set(None)
    try:
        return asyncio.get_running_loop().create_task(work)
    finally:
        OWNER.reset(token)


class VirtualClock:
    """A Clock on the loop's virtual time."""

    def now(self) -> Instant:
        """Unix seconds."""
        return EPOCH + asyncio.get_running_loop().time()

    async def sleep(self, seconds: Seconds) -> None:
        """Let so much virtual time pass."""
        await asyncio.sleep(seconds)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run something to its end on virtual time; what it left running is cancelled."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)
