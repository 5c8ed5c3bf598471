"""Queues requests to GitHub: a bounded number in flight, the most important first.

Checks the budget at the moment of sending. A request waits only for a free slot. If a rate limit does
not allow it, it fails at once.
"""

import asyncio
import heapq
import math
from dataclasses import dataclass, field

from autoscaler.controller.ports.clock import Clock
from autoscaler.github.requests.budget import RESERVES, Budget
from autoscaler.github.requests.exchange import Answer, Importance, Request
from autoscaler.github.requests.outcomes import LimitError
from autoscaler.model.identifiers import Instant


@dataclass(order=True, slots=True)
class _Waiting:
    importance: Importance
    number: int
    caller: str = field(compare=False)
    request: Request = field(compare=False)
    admitted: asyncio.Future[None] = field(compare=False)


class RequestQueue:
    """The queue of one event loop. `slots` is the largest number of requests in flight."""

    def __init__(self, budget: Budget, clock: Clock, slots: int) -> None:
        self.budget = budget
        self._clock = clock
        self._slots = slots
        self._under_way = 0
        self._queue: list[_Waiting] = []
        self._number = 0

    def check(self, caller: str, request: Request) -> None:
        """Raise LimitError if the budget does not allow this request now."""
        self._refuse(caller, request, self._clock.now())

    async def enter(self, caller: str, request: Request) -> None:
        """Wait until the request may be sent. Call `leave` afterwards. Raises LimitError."""
        self._number += 1
        admitted = asyncio.get_running_loop().create_future()
        waiting = _Waiting(request.importance, self._number, caller, request, admitted)
        heapq.heappush(self._queue, waiting)
        self._admit()
        try:
            await admitted
        except asyncio.CancelledError:
            if admitted.done() and not admitted.cancelled() and admitted.exception() is None:
                self.leave(caller, request, None)
            raise

    def leave(self, caller: str, request: Request, answer: Answer | None) -> None:
        """Free the request's slot, and record its answer, or None if there was none."""
        self._under_way -= 1
        self.budget.finish(caller, request, answer, self._clock.now())
        self._admit()

    def _admit(self) -> None:
        now = self._clock.now()
        while self._queue and self._has_slot(self._queue[0].importance):
            waiting = heapq.heappop(self._queue)
            if waiting.admitted.done():
                continue
            try:
                self._refuse(waiting.caller, waiting.request, now)
            except LimitError as error:
                waiting.admitted.set_exception(error)
                continue
            self._under_way += 1
            self.budget.begin(waiting.caller, waiting.request, now)
            waiting.admitted.set_result(None)

    def _has_slot(self, importance: Importance) -> bool:
        return self._under_way < self._slots - math.floor(self._slots * RESERVES[importance])

    def _refuse(self, caller: str, request: Request, now: Instant) -> None:
        shortage = self.budget.shortage(caller, request, now)
        if shortage is not None:
            text = f"{request.endpoint}: {shortage.why}"
            raise LimitError(text, shortage.seconds, shortage.limit)
