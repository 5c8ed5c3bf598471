"""EC2's request limits: token buckets for requests and for the instances in them.

Refuses requests with RequestLimitExceeded while limits are set; off by default.

Sizes: EC2 Developer Guide, "Request throttling for the Amazon EC2 API". Each API has its own bucket for each
account and region.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from autoscaler.model.catalogue import Rate
from lab.ec2.query import Ec2Error

THROTTLED = "RequestLimitExceeded"
READING_VERBS = ("Describe", "Get", "List", "Search")
LISTING = "DescribeInstances without filter or page"
LAUNCHING = "instances launched"
TERMINATING = "instances terminated"


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """The limits that EC2 publishes. `requests` are the APIs with a size of their own.

    CreateFleet is in no published list, so it has the size of other mutating calls. Its instances use the
    bucket of RunInstances.
    """

    requests: Mapping[str, Rate] = field(
        default_factory=lambda: {
            "CreateTags": Rate(100, 10),
            "RunInstances": Rate(5, 2),
            "StartInstances": Rate(5, 2),
            "TerminateInstances": Rate(100, 5),
        }
    )
    reading: Rate = field(default=Rate(100, 20))
    listing: Rate = field(default=Rate(50, 10))
    mutating: Rate = field(default=Rate(50, 5))
    launched: Rate = field(default=Rate(1000, 2))
    terminated: Rate = field(default=Rate(1000, 20))

    def bucket(self, api: str) -> Rate:
        """Return the size of a bucket, by API or by one of this module's names."""
        known = {LISTING: self.listing, LAUNCHING: self.launched, TERMINATING: self.terminated}
        if api in known:
            return known[api]
        if api in self.requests:
            return self.requests[api]
        return self.reading if api.startswith(READING_VERBS) else self.mutating


PUBLISHED = RequestLimits()


@dataclass(slots=True)
class _Level:
    tokens: float
    at: float


class Throttling:
    """One account's buckets. `refused` counts refused requests by bucket."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._limits: RequestLimits | None = None
        self._levels: dict[str, _Level] = {}
        self.refused: Counter[str] = Counter()

    @property
    def limits(self) -> RequestLimits | None:
        """The limits from now on; None refuses nothing. Setting them fills every bucket."""
        return self._limits

    @limits.setter
    def limits(self, limits: RequestLimits | None) -> None:
        self._limits = limits
        self._levels.clear()

    def admit(self, fields: Mapping[str, str]) -> None:
        """Take a token for a request. Raises Ec2Error if there is none."""
        action = fields["Action"]
        self._take(LISTING if action == "DescribeInstances" and _lists_all(fields) else action, 1)

    def launch(self, instances: int) -> None:
        """Take tokens for a launch of this number of instances. Raises Ec2Error, and then takes none."""
        self._take(LAUNCHING, instances)

    def terminate(self, instances: int) -> None:
        """Take tokens to terminate this number of instances. Raises Ec2Error, and then takes none."""
        self._take(TERMINATING, instances)

    def _take(self, api: str, tokens: int) -> None:
        if self._limits is None:
            return
        bucket, now = self._limits.bucket(api), self._now()
        level = self._levels.setdefault(api, _Level(bucket.burst, now))
        level.tokens = bucket.refilled(level.tokens, now - level.at)
        level.at = now
        if level.tokens < tokens:
            self.refused[api] += 1
            raise Ec2Error(THROTTLED, "Request limit exceeded.")
        level.tokens -= tokens


def _lists_all(fields: Mapping[str, str]) -> bool:
    return not any(name.startswith(("Filter.", "InstanceId.", "MaxResults")) for name in fields)
