"""Waiting for news of something, or for a while: thousands of ready machines do so at once.

All who wait share one sleeper, so that each costs a future and no task. It never says what the
news is: who wakes looks for itself.
"""

import asyncio
import heapq
from collections.abc import Hashable
from typing import Generic, TypeVar

from autoscaler.controller.ports.clock import Clock
from autoscaler.model.identifiers import Instant, Seconds

K = TypeVar("K", bound=Hashable)


class Wakeups(Generic[K]):
    """Who waits for news of which key, and until when at most."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # In the order in which they came: a set's is by address, another one in each process.
        self._waiting: dict[K, dict[asyncio.Future[None], None]] = {}
        self._ends: list[tuple[Instant, int, asyncio.Future[None]]] = []
        self._waits = 0
        self._sleeper: asyncio.Task[None] | None = None
        self._sleeps_until: Instant = 0.0

    async def wait(self, key: K, seconds: Seconds) -> None:
        """Return when there is news of `key`, or after the time."""
        news: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, {})[news] = None
        self._end_at(self._clock.now() + seconds, news)
        try:
            await news
        finally:
            self._forget(key, news)

    def wake(self, key: K) -> None:
        """Let all who wait for news of `key` go on."""
        for news in self._waiting.get(key, ()):
            if not news.done():
                news.set_result(None)

    def wake_all(self) -> None:
        """Let everybody go on."""
        for key in self._waiting:
            self.wake(key)

    def _end_at(self, end: Instant, news: asyncio.Future[None]) -> None:
        self._waits += 1
        heapq.heappush(self._ends, (end, self._waits, news))
        if self._sleeper is None or end < self._sleeps_until:
            self._sleep_again()

    def _sleep_again(self) -> None:
        if self._sleeper is not None:
            self._sleeper.cancel()
        self._sleeps_until = self._ends[0][0]
        self._sleeper = asyncio.get_running_loop().create_task(self._sleep())

    async def _sleep(self) -> None:
        """Wake each at its end, until nobody waits."""
        while self._ends:
            self._sleeps_until = self._ends[0][0]
            await self._clock.sleep(self._sleeps_until - self._clock.now())
            self._wake_those_until(self._sleeps_until)
        self._sleeper = None

    def _wake_those_until(self, end: Instant) -> None:
        # What was slept counts, not what a clock that was set back says now.
        while self._ends and (self._ends[0][2].done() or self._ends[0][0] <= end):
            news = heapq.heappop(self._ends)[2]
            if not news.done():
                news.set_result(None)

    def _forget(self, key: K, news: asyncio.Future[None]) -> None:
        waiting = self._waiting[key]
        waiting.pop(news, None)
        if not waiting:
            del self._waiting[key]
        if not self._waiting and self._sleeper is not None:
            self._sleeper.cancel()
            self._sleeper = None
            self._ends.clear()
