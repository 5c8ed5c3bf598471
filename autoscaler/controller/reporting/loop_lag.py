"""Measures how late the event loop runs its timers, because something blocked the loop.

While the loop is blocked, webhook deliveries, machines' requests and all other tasks wait.
"""

import asyncio

from autoscaler.controller.ports.telemetry import LagTelemetry
from autoscaler.model.identifiers import Seconds

EVERY: Seconds = 0.01
"""How often a timer is set. A longer stall is measured as up to this much shorter than it was."""

WINDOW: Seconds = 60.0
"""The metric shows the longest lag of this window and of the one before: a scrape misses none."""


class LoopLag:
    """Reports the longest lag of the last one to two windows to the telemetry."""

    def __init__(self, telemetry: LagTelemetry) -> None:
        self._telemetry = telemetry

    async def run(self) -> None:
        """Measure on the clock of the running loop until cancelled."""
        loop = asyncio.get_running_loop()
        before = longest = 0.0
        ends = loop.time() + WINDOW
        while True:
            due = loop.time() + EVERY
            await asyncio.sleep(EVERY)
            now = loop.time()
            longer = now - due > longest
            longest = max(longest, now - due)
            ended = now >= ends
            if ended:
                before, longest, ends = longest, 0.0, now + WINDOW
            if longer or ended:
                self._telemetry.event_loop_lag(max(before, longest))
