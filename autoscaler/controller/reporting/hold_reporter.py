"""Reports how many offerings are on hold. A hold ends by time, without an event."""

from autoscaler.controller.journal import Journal
from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.telemetry import HoldTelemetry
from autoscaler.model.identifiers import Seconds
from autoscaler.views.holds import offerings_on_hold

EVERY: Seconds = 15.0
"""About as often as Prometheus scrapes."""


class HoldReporter:
    """Counts the offerings on hold every 15 seconds."""

    def __init__(self, journal: Journal, telemetry: HoldTelemetry, clock: Clock) -> None:
        self._journal = journal
        self._telemetry = telemetry
        self._clock = clock

    async def run(self) -> None:
        """Report until cancelled."""
        while True:
            self._telemetry.offerings_on_hold(offerings_on_hold(self._journal.fleet()))
            await self._clock.sleep(EVERY)
