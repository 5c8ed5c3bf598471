"""Asks GitHub to redeliver failed webhooks, and stores until when all deliveries have arrived."""

from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.github import GitHub, GitHubError, RetryLaterError
from autoscaler.controller.ports.store import Store
from autoscaler.model.identifiers import Instant, Seconds

REDELIVER_EVERY: Seconds = 20.0
REDELIVERY_WINDOW: Seconds = 3 * 86400.0
"""GitHub redelivers for three days (docs.github.com, webhooks: redelivering)."""

HEARTBEAT_EVERY: Seconds = 10.0


class Redelivery:
    """Looks for failed deliveries in a task of its own, beside the one that stores heartbeats."""

    def __init__(self, github: GitHub, store: Store, clock: Clock) -> None:
        self._github = github
        self._store = store
        self._clock = clock
        self._arrived_until = clock.now()
        self.github_answered = False

    def resume(self, arrived_until: Instant | None) -> None:
        """Check deliveries since then, or since now if None.

        `arrived_until` may come from a clock that was ahead. It is then ignored, and deliveries of the
        whole redelivery window are checked.
        """
        now = self._clock.now()
        since = now if arrived_until is None else arrived_until
        self._arrived_until = since if since <= now else now - REDELIVERY_WINDOW

    async def run(self) -> None:
        """Have failed deliveries sent again, every `REDELIVER_EVERY`, until cancelled."""
        while True:
            oldest = self._clock.now() - REDELIVERY_WINDOW
            pause = REDELIVER_EVERY
            try:
                done = await self._github.redeliver_failed(max(oldest, self._arrived_until))
            except RetryLaterError as error:  # logged, with its App, by the adapter
                pause = max(pause, error.retry_after)
            except GitHubError:
                pause = 60.0
            else:
                self.github_answered = True
                self._arrived_until = done.arrived_until
            await self._clock.sleep(pause)

    async def record_heartbeats(self) -> None:
        """Store the time and what has arrived, every `HEARTBEAT_EVERY`, until cancelled. Raises StoreError."""
        while True:
            await self._store.record_heartbeat(self._clock.now(), self._arrived_until)
            await self._clock.sleep(HEARTBEAT_EVERY)
