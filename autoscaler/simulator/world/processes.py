"""The processes of a world, as its event loop and its ports see them: tasks, calls, pauses."""

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, TypeVar

from autoscaler.controller.ports.replicas import Leads, leads_forever

T = TypeVar("T")


class CrashPoint:
    """Counts a process's calls of its ports, and blocks the process for ever at the n-th.

    Each call is counted twice: before it has any effect, and before its answer arrives.
    """

    def __init__(self, count: int | None = None) -> None:
        self.calls = 0
        self.reached = asyncio.Event()
        self._block = self.reached.set
        self._armed: dict[Callable[[], None], int] = {}
        if count is not None:
            self.arm(count)

    def arm(self, count: int, act: Callable[[], None] | None = None) -> None:
        """Call `act` at the `count`-th count from now on, and not at an earlier one. By default, block."""
        self._armed[self._block if act is None else act] = self.calls + count

    async def count_call(self) -> None:
        """Count a call. Once blocked, never return."""
        if not self.reached.is_set():
            self.calls += 1
            if not self._armed:
                return
            due = [act for act, count in self._armed.items() if count <= self.calls]
            if not due:
                return
            for act in due:
                del self._armed[act]
                act()
        if self.reached.is_set():
            await asyncio.Event().wait()
        await asyncio.sleep(0)  # a process that was paused here goes on here


class Process:
    """A process of an operating system.

    `leads` is asked immediately before each effect outside the process, and then `sending` is called.
    While the process is paused, `held` are the calls that the event loop holds back.
    """

    def __init__(self, crash_point: CrashPoint | None = None) -> None:
        self.crash_point = CrashPoint() if crash_point is None else crash_point
        self.leads: Leads = leads_forever
        self.sending: Callable[[], None] = lambda: None
        self.held: deque[Any] | None = None


class Tasks:
    """Some tasks of a process, in the order in which they began. The order of a set would be random."""

    def __init__(self, process: Process | None = None) -> None:
        self.process = Process() if process is None else process
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


def calling() -> Process | None:
    """Return the process that calls a port, or None for the world itself."""
    owner = OWNER.get()
    return None if owner is None else owner.process


async def count_call() -> None:
    """Count a call of a port, which may be the last one of its process."""
    owner = OWNER.get()
    if owner is not None:
        await owner.process.crash_point.count_call()


def send(effect: Callable[[], T], not_sent: Callable[[str], Exception]) -> T:
    """Carry out a request that changes something outside the calling process, and return its result.

    Raises `not_sent` if the process does not lead, as adapters do immediately before they send. What follows
    from the effect does not wait for a process that is paused.
    """
    process = calling()
    if process is None:
        return effect()
    if process.leads() <= 0.0:
        raise not_sent("this replica does not lead")
    process.sending()
    return outside(effect)


def outside(effect: Callable[[], T]) -> T:
    """Call a function in the context of the world itself."""
    token = OWNER.set(None)
    try:
        return effect()
    finally:
        OWNER.reset(token)
