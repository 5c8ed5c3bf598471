"""Waits for changes, each with a timeout on the controller's clock.

`Wakeups` lets thousands of coroutines wait for changes of a key. All waiters share one timer task, so that
each waiter costs a future and no task. A waiter has to check for itself what changed.
"""

import asyncio
import heapq
from collections.abc import Hashable
from typing import Generic, TypeVar

from autoscaler.controller.ports.clock import Clock
from autoscaler.model.identifiers import Instant, Seconds

K = TypeVar("K", bound=Hashable)


async def set_within(event: asyncio.Event, seconds: Seconds, clock: Clock) -> None:
    """Wait until the event is set, or for `seconds` of the clock's time."""
    sleeper = asyncio.ensure_future(clock.sleep(seconds))
    waiter = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait({sleeper, waiter}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        sleeper.cancel()
        waiter.cancel()


class Wakeups(Generic[K]):
    """The waiters for each key, and when each wait times out."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # Dictionaries keep the order of arrival; the order of a set differs between processes.
        self._waiting: dict[K, dict[asyncio.Future[None], None]] = {}
        self._ends: list[tuple[Instant, int, asyncio.Future[None]]] = []
        self._waits = 0
        self._sleeper: asyncio.Task[None] | None = None
        self._sleeps_until: Instant = 0.0

    async def wait(self, key: K, seconds: Seconds) -> None:
        """Wait until `wake(key)` is called, or for `seconds`."""
        news: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, {})[news] = None
        self._end_at(self._clock.now() + seconds, news)
        try:
            await news
        finally:
            self._forget(key, news)

    def wake(self, key: K) -> None:
        """Wake all waiters for `key`."""
        for news in self._waiting.get(key, ()):
            if not news.done():
                news.set_result(None)

    def wake_all(self) -> None:
        """Wake all waiters."""
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
        """Wake each waiter at its timeout, until no waiter is left."""
        while self._ends:
            self._sleeps_until = self._ends[0][0]
            await self._clock.sleep(self._sleeps_until - self._clock.now())
            self._wake_those_until(self._sleeps_until)
        self._sleeper = None

    def _wake_those_until(self, end: Instant) -> None:
        # Compares with the planned end, because a clock that was set back may show an earlier time.
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
