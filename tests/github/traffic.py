"""The requests that arrive at the lab's GitHub: counted, and held back where a test wants it."""

import asyncio
import re
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.patience import PATIENCE


@dataclass
class Traffic:
    """`calls` are `METHOD /path?query`, in order; `conditional` counts requests with an ETag.

    While `hold` is an event that is not set, no request is carried out.
    """

    calls: list[str] = field(default_factory=list)
    conditional: int = 0
    under_way: int = 0
    most_under_way: int = 0
    hold: asyncio.Event | None = None
    arrival: asyncio.Condition = field(default_factory=asyncio.Condition)

    def count(self, pattern: str) -> int:
        """Return how many requests matched `METHOD path-pattern`."""
        return sum(1 for call in self.calls if re.search(pattern, call))

    async def until_under_way(self, number: int) -> None:
        """Wait until this many requests have arrived and are not answered yet."""
        async with asyncio.timeout(PATIENCE), self.arrival:
            await self.arrival.wait_for(lambda: self.under_way >= number)

    async def until_called(self, pattern: str, times: int) -> None:
        """Wait until so many requests that match have arrived."""
        async with asyncio.timeout(PATIENCE), self.arrival:
            await self.arrival.wait_for(lambda: self.count(pattern) >= times)

    @web.middleware
    async def watch(self, request: web.Request, handler: Any) -> web.StreamResponse:
        """Count the request, and carry it out once nothing holds it."""
        self.calls.append(f"{request.method} {request.rel_url}")
        self.conditional += "If-None-Match" in request.headers
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        async with self.arrival:
            self.arrival.notify_all()
        try:
            if self.hold is not None:
                await self.hold.wait()
            answer: web.StreamResponse = await handler(request)
            return answer
        finally:
            self.under_way -= 1
