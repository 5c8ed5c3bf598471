"""An event loop whose time jumps to the next timer: hours pass in milliseconds, in one order.

It decides when timers are due and nothing else. Nothing here waits for real time.
"""

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import Any, ParamSpec, TypeVar

from autoscaler.model.identifiers import Instant, Seconds

T = TypeVar("T")
P = ParamSpec("P")

EPOCH: Instant = 1_800_000_000.0

OWNER: ContextVar[set[asyncio.Task[Any]] | None] = ContextVar("OWNER", default=None)
"""Where tasks are noted that come from this context: those of one process, to be killed with it."""


class _JumpingSelector(selectors.DefaultSelector):
    """Lets the loop's time jump instead of waiting for it."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if ready or timeout == 0:
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
        task.add_done_callback(owner.discard)
    return task


class VirtualClock:
    """A Clock on the loop's virtual time."""

    def now(self) -> Instant:
        return EPOCH + asyncio.get_running_loop().time()

    async def sleep(self, seconds: Seconds) -> None:
        await asyncio.sleep(seconds)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run something to its end on virtual time; what it left running is cancelled."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)


def on_virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Make an ordinary test of an asynchronous one."""

    @functools.wraps(test)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> None:
        run(test(*args, **kwargs))

    return wrapper
