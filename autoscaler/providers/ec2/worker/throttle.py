"""Keeps calls within EC2's published limits: token buckets for requests, and for their machines.

Delays calls. If EC2 throttles a call, because others in the account share the limit, the bucket
counts as empty, and further calls back off.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.provider import ProviderError
from autoscaler.controller.ports.telemetry import Telemetry
from autoscaler.model.backoff import Backoff
from autoscaler.model.catalogue import Rate
from autoscaler.model.identifiers import Instant, ProviderName, Seconds
from autoscaler.model.machines.failures import FailureClass
from autoscaler.providers.ec2.errors import metric_label
from autoscaler.providers.ec2.worker.channel import Api, CallOutcomeUnknownError

MUTATING = Rate(50, 5)
READING = Rate(100, 20)

REQUEST_BUCKETS: Mapping[str, Rate] = {
    "CreateFleet": MUTATING,
    "CreateTags": Rate(100, 10),
    "RunInstances": Rate(5, 2),
    "StartInstances": Rate(5, 2),
    "TerminateInstances": Rate(100, 5),
}
"""Requests by API, per account and region (EC2 Developer Guide, "Request throttling").

CreateFleet is not listed there, so it gets the bucket of other mutating calls. Large users of
terraform-aws-github-runner see fewer than ten a second, which can be configured. DescribeInstances is
always paged here; unpaged and unfiltered, its bucket would be 50 and 10.
"""

RESOURCE_BUCKETS: Mapping[str, Rate] = {"TerminateInstances": Rate(1000, 20)}
"""Machines in requests by API (same page). CreateFleet is not listed, so there is no bucket for it. That
of RunInstances, 1000 and 2, would delay a fleet with 2.4 jobs a second."""

SPARING = Rate(5, 5)
"""For Service Quotas and the Price List, whose limits are not published. They get few calls."""

BACKOFF = Backoff(1.0, 60.0)


def request_bucket(api: str, given: Mapping[str, Rate]) -> Rate:
    """Return the bucket of an API's requests: the account's own if it is configured."""
    known = given.get(api) or REQUEST_BUCKETS.get(api)
    if known is not None:
        return known
    if api in {"GetProducts", "ListServiceQuotas"}:
        return SPARING
    return READING if api.startswith(("Describe", "Get")) else MUTATING


def resource_bucket(api: str, given: Mapping[str, Rate]) -> Rate | None:
    """Return the bucket of the machines in an API's requests; None if they are not limited."""
    return given.get(api) or RESOURCE_BUCKETS.get(api)


@dataclass(slots=True)
class _Level:
    """The tokens in a bucket at a time; a negative number is reserved by waiting calls."""

    bucket: Rate
    tokens: float
    at: Instant

    def take(self, count: float, now: Instant) -> Seconds:
        """Take at most a full bucket of tokens, and return the seconds to wait for them."""
        self._refill(now)
        self.tokens -= min(count, self.bucket.burst)
        return max(0.0, -self.tokens / self.bucket.per_second)

    def drain(self, now: Instant) -> None:
        """Empty the bucket, because EC2 throttled a call."""
        self._refill(now)
        self.tokens = min(self.tokens, 0.0)

    def _refill(self, now: Instant) -> None:
        self.tokens = self.bucket.refilled(self.tokens, now - self.at)
        self.at = now


@dataclass(slots=True)
class _BackOff:
    """How often in a row EC2 throttled an API, and until when no call is sent."""

    failures: int = 0
    until: Instant = 0.0


class Throttle:
    """The buckets by API name. `requests` and `resources` replace EC2's published ones."""

    def __init__(
        self,
        clock: Clock,
        requests: Mapping[str, Rate] | None = None,
        resources: Mapping[str, Rate] | None = None,
    ) -> None:
        self._clock = clock
        self._requests = requests or {}
        self._resources = resources or {}
        self._levels: dict[tuple[str, str], _Level] = {}
        self._back_offs: dict[str, _BackOff] = {}

    async def admit(self, api: str, machines: int = 0) -> None:
        """Wait until a call for this many machines may be sent. Calls are admitted in order."""
        now = self._clock.now()
        wait = self._level("request", api, request_bucket(api, self._requests)).take(1, now)
        resources = resource_bucket(api, self._resources)
        if resources is not None and machines:
            wait = max(wait, self._level("machine", api, resources).take(machines, now))
        wait = max(wait, self._on_hold(api))
        while wait > 0:
            await self._clock.sleep(wait)
            # EC2 may have throttled other calls meanwhile. This call keeps its tokens: the bucket
            # refills during the back-off.
            wait = self._on_hold(api)

    def refused(self, api: str, retry_after: Seconds | None = None) -> None:
        """Empty the bucket and back off, because EC2 throttled a call.

        Refusals of calls that were in flight together count once.
        """
        now = self._clock.now()
        self._level("request", api, request_bucket(api, self._requests)).drain(now)
        known = self._back_offs.setdefault(api, _BackOff())
        if known.until <= now:
            known.failures += 1
            known.until = now + BACKOFF.delay(known.failures - 1)
        known.until = max(known.until, now + (retry_after or 0.0))

    def accepted(self, api: str) -> None:
        """Reset the back-off, because EC2 accepted a call."""
        known = self._back_offs.get(api)
        if known is not None and known.until <= self._clock.now():
            del self._back_offs[api]

    def _on_hold(self, api: str) -> Seconds:
        """Return how long calls of this API still back off; negative if the time is over."""
        known = self._back_offs.get(api)
        return 0.0 if known is None else known.until - self._clock.now()

    def _level(self, kind: str, api: str, bucket: Rate) -> _Level:
        key = (kind, api)
        if key not in self._levels:
            self._levels[key] = _Level(bucket, bucket.burst, self._clock.now())
        return self._levels[key]


class MeteredApi:
    """An `Api` that wraps another one. The measured time does not include the wait for a bucket."""

    def __init__(
        self,
        api: Api,
        provider: ProviderName,
        telemetry: Telemetry,
        clock: Clock,
        throttle: Throttle,
    ) -> None:
        self._api = api
        self._provider = provider
        self._telemetry = telemetry
        self._clock = clock
        self._throttle = throttle

    async def call(self, operation: str, arguments: Mapping[str, Any]) -> Any:
        """Make one call (see `Api`)."""
        await self._throttle.admit(operation, _machines(operation, arguments))
        began = self._clock.now()
        outcome = "cancelled"
        try:
            answer = await self._api.call(operation, arguments)
            outcome = "ok"
            self._throttle.accepted(operation)
        except (ProviderError, CallOutcomeUnknownError) as error:
            outcome = metric_label(error.code)
            if isinstance(error, ProviderError) and error.failure is FailureClass.THROTTLED:
                self._throttle.refused(operation, error.retry_after)
            raise
        finally:
            took = self._clock.now() - began
            self._telemetry.provider_call(self._provider, operation, outcome, took)
        return answer

    async def close(self) -> None:
        """Close the wrapped `Api`."""
        await self._api.close()


def _machines(operation: str, arguments: Mapping[str, Any]) -> int:
    """Return how many machines a call launches or terminates."""
    if operation == "CreateFleet":
        return int(arguments["TargetCapacitySpecification"]["TotalTargetCapacity"])
    return len(arguments["ids"]) if operation == "TerminateInstances" else 0
