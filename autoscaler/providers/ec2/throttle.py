"""Keeps calls within EC2's published limits: token buckets for requests, and for their machines.

It delays calls and never drops one. If other users of the account use up the limit, EC2 throttles: then
the bucket counts as empty, and calls back off.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from autoscaler.controller.ports.clock import Clock
from autoscaler.model.identifiers import Instant, Seconds
from autoscaler.providers.ec2.settings import Bucket

MUTATING = Bucket(50, 5)
READING = Bucket(100, 20)

REQUEST_BUCKETS: Mapping[str, Bucket] = {
    "CreateFleet": MUTATING,
    "CreateTags": Bucket(100, 10),
    "RunInstances": Bucket(5, 2),
    "StartInstances": Bucket(5, 2),
    "TerminateInstances": Bucket(100, 5),
}
"""Requests by API, per account and region (EC2 Developer Guide, "Request throttling").

CreateFleet is not listed there and counts as any other mutating call; large users of
terraform-aws-github-runner see low single-digit rates, which the settings can say. We always
page DescribeInstances: unpaged and unfiltered it would have 50 and 10.
"""

RESOURCE_BUCKETS: Mapping[str, Bucket] = {"TerminateInstances": Bucket(1000, 20)}
"""Machines in requests by API (same page). RunInstances has 1000 and 2 there, which a large fleet
would be held up by at 2.4 jobs a second; CreateFleet is not listed, so EC2 is left to refuse."""

SPARING = Bucket(5, 5)
"""Service Quotas and the Price List publish no size; a few calls at a time need no more."""

FIRST_BACK_OFF: Seconds = 1.0
LONGEST_BACK_OFF: Seconds = 60.0


def request_bucket(api: str, given: Mapping[str, Bucket]) -> Bucket:
    """Return the bucket of an API's requests: the account's own if it is configured."""
    known = given.get(api) or REQUEST_BUCKETS.get(api)
    if known is not None:
        return known
    if api in {"GetProducts", "ListServiceQuotas"}:
        return SPARING
    return READING if api.startswith(("Describe", "Get")) else MUTATING


def resource_bucket(api: str, given: Mapping[str, Bucket]) -> Bucket | None:
    """Return the bucket of the machines in an API's requests; None if they are not limited."""
    return given.get(api) or RESOURCE_BUCKETS.get(api)


@dataclass(slots=True)
class _Level:
    """What is in a bucket at a moment; below zero it is promised to calls that wait."""

    bucket: Bucket
    tokens: float
    at: Instant

    def take(self, count: float, now: Instant) -> Seconds:
        """Take tokens, and how long to wait for them. One call never asks for more than it holds."""
        self._refill(now)
        self.tokens -= min(count, self.bucket.capacity)
        return max(0.0, -self.tokens / self.bucket.refill)

    def drain(self, now: Instant) -> None:
        """Empty the bucket, because EC2 throttled a call."""
        self._refill(now)
        self.tokens = min(self.tokens, 0.0)

    def _refill(self, now: Instant) -> None:
        grown = self.tokens + (now - self.at) * self.bucket.refill
        self.tokens = min(self.bucket.capacity, grown)
        self.at = now


@dataclass(slots=True)
class _BackOff:
    """How often in a row an API was refused, and until when it is left alone."""

    failures: int = 0
    until: Instant = 0.0


class Throttle:
    """Buckets by API name, on the given clock; `requests` and `resources` replace published ones."""

    def __init__(
        self,
        clock: Clock,
        requests: Mapping[str, Bucket] | None = None,
        resources: Mapping[str, Bucket] | None = None,
    ) -> None:
        self._clock = clock
        self._requests = requests or {}
        self._resources = resources or {}
        self._levels: dict[tuple[str, str], _Level] = {}
        self._back_offs: dict[str, _BackOff] = {}

    async def admit(self, api: str, machines: int = 0) -> None:
        """Return when a call for so many machines may be sent. Callers are served in order."""
        now = self._clock.now()
        wait = self._level("request", api, request_bucket(api, self._requests)).take(1, now)
        resources = resource_bucket(api, self._resources)
        if resources is not None and machines:
            wait = max(wait, self._level("machine", api, resources).take(machines, now))
        wait = max(wait, self._held(api))
        while wait > 0:
            await self._clock.sleep(wait)
            # EC2 may have refused others meanwhile. The tokens stay taken: by the time that the
            # API may be asked again, the bucket has refilled what those who wait were promised.
            wait = self._held(api)

    def refused(self, api: str, retry_after: Seconds | None = None) -> None:
        """Empty the bucket and back off, because EC2 throttled a call.

        Refusals of calls that were in flight together count once.
        """
        now = self._clock.now()
        self._level("request", api, request_bucket(api, self._requests)).drain(now)
        known = self._back_offs.setdefault(api, _BackOff())
        if known.until <= now:
            known.failures += 1
            hold = min(FIRST_BACK_OFF * 2.0 ** min(known.failures - 1, 16), LONGEST_BACK_OFF)
            known.until = now + hold
        known.until = max(known.until, now + (retry_after or 0.0))

    def accepted(self, api: str) -> None:
        """Reset the back-off, because EC2 accepted a call."""
        known = self._back_offs.get(api)
        if known is not None and known.until <= self._clock.now():
            del self._back_offs[api]

    def _held(self, api: str) -> Seconds:
        """How long EC2's refusals leave the API alone from now on."""
        known = self._back_offs.get(api)
        return 0.0 if known is None else known.until - self._clock.now()

    def _level(self, kind: str, api: str, bucket: Bucket) -> _Level:
        key = (kind, api)
        if key not in self._levels:
            self._levels[key] = _Level(bucket, bucket.capacity, self._clock.now())
        return self._levels[key]
