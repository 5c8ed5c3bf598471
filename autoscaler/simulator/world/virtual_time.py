"""An event loop whose time jumps to the next timer. Hours pass in milliseconds, in a fixed order."""

import asyncio
import selectors
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from heapq import heapify, heappop, heappush
from typing import Any, TypeVar, TypeVarTuple, Unpack

from autoscaler.model.identifiers import Instant, Seconds
from autoscaler.simulator.world.processes import OWNER, Process, outside

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")

EPOCH: Instant = 1_800_000_000.0


OUTSIDE_EVERY = 100
"""Jumps between two polls of real file descriptors, because a poll costs more than a jump."""

LONGEST_JUMP: Seconds = 86400.0
RESOLUTION: Seconds = 1e-9
"""Timers that are due within this time are run together."""

CANCELLED_KEPT = 100
"""Up to this number of timers, those that were cancelled stay in the heap until they are due."""


class _Call(asyncio.TimerHandle):
    """A function to call once, soon or at a moment. `function` is None once it is cancelled."""

    __slots__ = ("args", "context", "function", "loop", "waits")

    def __init__(  # The attributes of asyncio's class are not used, so they are not set.
        self,
        loop: "VirtualLoop",
        function: Callable[..., object],
        args: tuple[Any, ...],
        context: Context | None,
        waits: bool = False,
    ) -> None:
        self.loop = loop
        self.function: Callable[..., object] | None = function
        self.args = args
        self.context = copy_context() if context is None else context
        self.waits = waits

    # Timers of the same moment have no order of their own: their places in the heap decide.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __lt__(self, other: object) -> bool:
        return False

    def __repr__(self) -> str:
        return f"<{self.function!r}>"

    def cancel(self) -> None:
        if self.function is not None:
            self.function, self.args = None, ()
            self.loop.cancelled += self.waits

    def cancelled(self) -> bool:
        return self.function is None


class VirtualLoop(asyncio.SelectorEventLoop):
    """Runs timers in order, without waiting for real time.

    Calls functions in the order in which asyncio's loop calls them, with half of its work: a world
    runs some 50,000 of them. `cancelled` counts the timers in the heap that were cancelled.
    """

    def __init__(self) -> None:
        self._outside = selectors.DefaultSelector()
        self._soon: deque[_Call] = deque()
        self._timers: list[tuple[float, _Call]] = []
        self._time = 0.0
        self._jumps = 0
        self._paused = 0
        self.cancelled = 0
        super().__init__(self._outside)
        self.set_task_factory(_owned_task)

    def time(self) -> float:
        """Return virtual seconds since the loop was created."""
        return self._time

    def call_soon(
        self,
        callback: Callable[[Unpack[Arguments]], object],
        *args: *Arguments,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """Call a function in the next step."""
        call = _Call(self, callback, args, context)
        self._soon.append(call)
        return call

    def call_soon_threadsafe(
        self,
        callback: Callable[[Unpack[Arguments]], object],
        *args: *Arguments,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """Call a function in the next step, from another thread."""
        call = self.call_soon(callback, *args, context=context)
        self._write_to_self()  # type: ignore[attr-defined]
        return call

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Arguments]], object],
        *args: *Arguments,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call a function after this much virtual time."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Arguments]], object],
        *args: *Arguments,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call a function at a virtual time."""
        call = _Call(self, callback, args, context, waits=True)
        heappush(self._timers, (when, call))
        return call

    def pause(self, process: Process, lasts: Seconds) -> None:
        """Hold back all calls of a process for so long, as SIGSTOP and a suspended host do."""
        if process.held is None:
            process.held = deque()
            self._paused += 1
            outside(lambda: self.call_later(lasts, self.resume, process))

    def resume(self, process: Process) -> None:
        """Make the calls of a process that were held back, before all others."""
        held, process.held = process.held, None
        if held is not None:
            self._paused -= 1
            self._soon.extendleft(reversed(held))

    def close(self) -> None:
        """Drop all calls, and close."""
        super().close()
        self._soon.clear()
        self._timers.clear()

    def _add_callback(self, handle: asyncio.Handle) -> None:
        """Run what waits for a file descriptor. asyncio calls this."""
        if not handle.cancelled():
            self.call_soon(handle._run)  # noqa: SLF001 # asyncio's own

    def _run_once(self) -> None:
        """Run all calls that are due, after a jump in time if there are none. asyncio calls this."""
        self._drop_cancelled()
        soon, timers = self._soon, self._timers
        if not soon:
            self._jump()
        until = self.time() + RESOLUTION
        while timers and timers[0][0] < until:
            call = heappop(timers)[1]
            call.waits = False
            soon.append(call)
        for _ in range(len(soon)):
            call = soon.popleft()
            if (function := call.function) is None or (self._paused and self._hold(call)):
                continue
            try:
                call.context.run(function, *call.args)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:  # noqa: BLE001 # as asyncio's loop does
                message = f"Exception in callback {call}"
                self.call_exception_handler({"message": message, "exception": error})

    def _hold(self, call: _Call) -> bool:
        """Hold a call back if its process is paused. Return whether it is."""
        owner = call.context.get(OWNER)
        if owner is None or owner.process.held is None:
            return False
        owner.process.held.append(call)
        return True

    def _drop_cancelled(self) -> None:
        """Take cancelled timers from the heap: the next ones, or all once most are cancelled."""
        timers = self._timers
        if len(timers) > CANCELLED_KEPT and self.cancelled / len(timers) > 0.5:
            timers[:] = [timer for timer in timers if timer[1].function is not None]
            heapify(timers)
            self.cancelled = 0
            return
        while timers and timers[0][1].function is None:
            heappop(timers)[1].waits = False
            self.cancelled -= 1

    def _jump(self) -> None:
        """Advance the time to the next timer, unless something happened outside."""
        timers = self._timers
        if timers and timers[0][0] <= self.time():
            return
        self._jumps += 1
        if not timers or self._jumps % OUTSIDE_EVERY == 0:
            happened = self._outside.select(0)
            if happened:
                self._process_events(happened)  # type: ignore[attr-defined]
                return
            if not timers:
                raise RuntimeError("every task waits and no timer is set")
        self._time += min(timers[0][0] - self.time(), LONGEST_JUMP)


def _owned_task(
    loop: asyncio.AbstractEventLoop, work: Any, context: Any = None
) -> asyncio.Task[Any]:
    task = asyncio.Task(work, loop=loop, context=context)
    if (owner := OWNER.get()) is not None:
        owner.add(task)
    return task


def unowned(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Start a task that belongs to the world and not to a controller process."""
    return outside(lambda: asyncio.get_running_loop().create_task(work))


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
