"""Keeps calls within EC2's published request limits: a token bucket for each API.

It only makes a call wait; it never drops one, and it knows nothing of what other users of the
account send.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from autoscaler.controller.ports.clock import Clock
from autoscaler.model.identifiers import Instant
from autoscaler.providers.ec2.settings import Bucket

MUTATING = Bucket(50, 5)
READING = Bucket(100, 20)
PUBLISHED: Mapping[str, Bucket] = {"TerminateInstances": Bucket(100, 5)}
"""EC2 Developer Guide, "Request throttling": per account and region. CreateFleet is not listed
there, so it counts as any other mutating call."""


@dataclass(slots=True)
class _Level:
    tokens: float
    at: Instant


class Throttle:
    """Buckets by API name, on the given clock."""

    def __init__(self, clock: Clock, buckets: Mapping[str, Bucket] | None = None) -> None:
        self._clock = clock
        self._buckets = {**PUBLISHED, **(buckets or {})}
        self._levels: dict[str, _Level] = {}

    async def admit(self, operation: str) -> None:
        """Return when this call may be sent. Callers are served in order."""
        bucket = self._bucket(operation)
        now = self._clock.now()
        level = self._levels.setdefault(operation, _Level(bucket.capacity, now))
        level.tokens = min(bucket.capacity, level.tokens + (now - level.at) * bucket.refill)
        level.at = now
        # Below zero the tokens are promised to callers that wait: each waits behind the others.
        level.tokens -= 1
        if level.tokens < 0:
            await self._clock.sleep(-level.tokens / bucket.refill)

    def _bucket(self, operation: str) -> Bucket:
        if operation in self._buckets:
            return self._buckets[operation]
        return READING if operation.startswith(("Describe", "Get")) else MUTATING
