"""Calls functions at a given lab time, with one heap and one sleeping task.

Timers cannot be cancelled: the callback checks whether it still applies.
"""

import asyncio
import heapq
from collections.abc import Callable
from typing import Any

from autoscaler.controller.ports.clock import Clock


class Timers:
    """Timers in lab time. `run` runs until cancelled. It raises an error of a callback."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._earlier = asyncio.Event()

    def at(self, moment: float, call: Callable[[], None]) -> None:
        """Call back once, at `moment` (Unix seconds) or later."""
        self._count += 1
        heapq.heappush(self._heap, (moment, self._count, call))
        if self._heap[0][1] == self._count:
            self._earlier.set()

    def fire(self) -> None:
        """Call all callbacks that are due."""
        while self._heap and self._heap[0][0] <= self._clock.now():
            heapq.heappop(self._heap)[2]()

    async def run(self) -> None:
        """Call all callbacks that are due, sleep until the next one, and repeat."""
        while True:
            self._earlier.clear()
            self.fire()
            changed = asyncio.ensure_future(self._earlier.wait())
            waits: set[asyncio.Future[Any]] = {changed}
            if self._heap:
                due = self._heap[0][0] - self._clock.now()
                waits.add(asyncio.ensure_future(self._clock.sleep(max(due, 0.0))))
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    wait.cancel()
