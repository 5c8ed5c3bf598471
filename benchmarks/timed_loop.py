"""An event loop that measures the CPU time of each step that it runs, and keeps the longest by cause.

CPU time of the loop's own thread counts, so that other processes and threads do not change the figures.
A step is everything between two points at which the loop may run something else.
"""

import asyncio
import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType
from typing import Any

_BENCHMARKS = str(Path(__file__).parent)


@dataclass(slots=True)
class Cause:
    """The steps from one place in the code to another. Times are seconds of CPU time.

    `collecting` is how much of the longest step the garbage collector took.
    """

    longest: float = 0.0
    collecting: float = 0.0
    steps: int = 0
    total: float = 0.0


@dataclass(slots=True)
class Steps:
    """What was measured since `clear`: the steps that took longer than `least` seconds, by cause."""

    least: float = 0.002
    causes: dict[str, Cause] = field(default_factory=dict)
    measuring: bool = False

    def add(self, cause: str, took: float, collecting: float) -> None:
        """Count a step."""
        found = self.causes.setdefault(cause, Cause())
        found.steps += 1
        found.total += took
        if took > found.longest:
            found.longest, found.collecting = took, collecting

    @property
    def longest(self) -> float:
        """Return the CPU seconds of the longest step."""
        return max((cause.longest for cause in self.causes.values()), default=0.0)


class TimedLoop(asyncio.SelectorEventLoop):
    """An event loop that measures the CPU time of each callback."""

    def __init__(self) -> None:
        self.steps = Steps()
        self._collecting = 0.0
        self._collection_began = 0.0
        super().__init__()

    @contextmanager
    def measured(self) -> Iterator[Steps]:
        """Measure the steps inside this context, and the garbage collector's part of them."""
        gc.callbacks.append(self._on_collection)
        self.steps.measuring = True
        try:
            yield self.steps
        finally:
            self.steps.measuring = False
            gc.callbacks.remove(self._on_collection)

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """See `AbstractEventLoop.call_soon`."""
        return super().call_soon(self._run, callback, args, context=context)

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """See `AbstractEventLoop.call_soon_threadsafe`."""
        return super().call_soon_threadsafe(self._run, callback, args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """See `AbstractEventLoop.call_at`."""
        return super().call_at(when, self._run, callback, args, context=context)

    def _run(self, callback: Callable[..., Any], args: tuple[Any, ...]) -> None:
        if not self.steps.measuring:
            callback(*args)
            return
        task = getattr(callback, "__self__", None)
        before = _place(task)
        self._collecting, began = 0.0, time.thread_time()
        callback(*args)
        took = time.thread_time() - began
        if took > self.steps.least:
            self.steps.add(_cause(callback, task, before), took, self._collecting)

    def _on_collection(self, phase: str, info: dict[str, int]) -> None:
        del info
        if phase == "start":
            self._collection_began = time.thread_time()
        else:
            self._collecting += time.thread_time() - self._collection_began


def _cause(callback: Callable[..., Any], task: object, before: list[CodeType]) -> str:
    """Return the outermost coroutine of a step, and where it was and is suspended."""
    if not isinstance(task, asyncio.Task):
        return getattr(callback, "__qualname__", repr(callback))
    after = _place(task)
    if not after:  # it has ended
        outer, ends = before[0] if before else None, "its end"
    else:
        outer, ends = after[0], after[-1].co_qualname
    if all(code[-1].co_filename.startswith(_BENCHMARKS) for code in (before, after) if code):
        return "(the benchmark itself)"
    begins = before[-1].co_qualname if before and before[-1] is not outer else "its beginning"
    return f"{outer.co_qualname if outer else task}: {begins} -> {ends}"


def _place(task: object) -> list[CodeType]:
    """Return the code of a task's coroutines, from the outermost to the one that is suspended."""
    found: list[CodeType] = []
    coroutine: Any = task.get_coro() if isinstance(task, asyncio.Task) else None
    while coroutine is not None:
        code = getattr(coroutine, "cr_code", None)
        if code is None or coroutine.cr_frame is None:
            break
        found.append(code)
        coroutine = coroutine.cr_await
    return found
