"""GitHub's rate limits: the cost of a request, and whether it is allowed.

Pure: callers pass the time. A refused request costs nothing. Windows begin with their first request, as
GitHub's do.
"""

import math
from collections import Counter
from dataclasses import dataclass

from lab.github.settings import Limits

HOUR = 3600.0
MINUTE = 60.0
REGISTRATION_WINDOW = 300.0
CONCURRENT_PAUSE = 60


@dataclass(slots=True)
class Bucket:
    """A fixed window of `length` seconds that allows `limit` points."""

    limit: int
    length: float
    used: int = 0
    reset: float = 0.0

    def roll(self, now: float) -> None:
        """Begin a new window if the last one has ended."""
        if now >= self.reset:
            self.used = 0
            self.reset = now + self.length

    def take(self, cost: int, now: float) -> bool:
        """Charge `cost` points if the window allows them. Return whether it did."""
        self.roll(now)
        if self.used + cost > self.limit:
            return False
        self.used += cost
        return True

    @property
    def remaining(self) -> int:
        """The points left in this window."""
        return max(self.limit - self.used, 0)


@dataclass(frozen=True, slots=True)
class LimitHit:
    """The limit that refuses a request. `primary` is the hourly bucket; others are secondary limits.

    `retry_after` is in whole seconds, at least 1.
    """

    primary: bool
    retry_after: int


def _hit(bucket: Bucket, now: float, *, primary: bool) -> LimitHit:
    return LimitHit(primary, max(math.ceil(bucket.reset - now), 1))


class RateLimits:
    """The buckets of all callers. A caller is an installation or an App, identified by a key."""

    def __init__(self, limits: Limits | None) -> None:
        self._limits = limits
        self._hourly: dict[tuple[str, str], Bucket] = {}
        self._points: dict[tuple[str, str], Bucket] = {}
        self._registrations: dict[str, Bucket] = {}
        self._inside: Counter[str] = Counter()

    def set(self, limits: Limits | None) -> None:
        """Replace the limits and fill all buckets; None removes the limits."""
        self._limits = limits
        self._hourly.clear()
        self._points.clear()
        self._registrations.clear()

    def enter(self, caller: str) -> LimitHit | None:
        """Count a concurrent request of this caller until `leave`, or return why it is refused."""
        if self._limits is not None and self._inside[caller] >= self._limits.concurrent:
            return LimitHit(primary=False, retry_after=CONCURRENT_PAUSE)
        self._inside[caller] += 1
        return None

    def leave(self, caller: str) -> None:
        """Count the end of a request that `enter` counted."""
        self._inside[caller] -= 1

    def hourly(self, caller: str, resource: str, now: float) -> Bucket | None:
        """Return a caller's bucket as of now, or None without limits."""
        if self._limits is None:
            return None
        bucket = self._hourly.get((caller, resource))
        if bucket is None:
            limit = (
                self._limits.registrations_per_hour
                if resource == "actions_runner_registration"
                else self._limits.requests_per_hour
            )
            bucket = self._hourly[caller, resource] = Bucket(limit, HOUR)
        bucket.roll(now)
        return bucket

    def leave_over(self, caller: str, resource: str, remaining: int, now: float) -> None:
        """Spend a caller's bucket, so that this much is left. Raises RuntimeError without limits."""
        bucket = self.hourly(caller, resource, now)
        if bucket is None:
            raise RuntimeError("this GitHub has no limits")
        bucket.used = bucket.limit - remaining

    def charge(
        self, caller: str, endpoint: str, resource: str, now: float, *, write: bool
    ) -> LimitHit | None:
        """Charge one request. Return the limit that refuses it, or None."""
        hourly = self.hourly(caller, resource, now)
        if self._limits is None or hourly is None:
            return None
        if not hourly.remaining:
            return _hit(hourly, now, primary=True)
        points = self._points.get((caller, endpoint))
        if points is None:
            points = self._points[caller, endpoint] = Bucket(self._limits.points_per_minute, MINUTE)
        if not points.take(5 if write else 1, now):
            return _hit(points, now, primary=False)
        hourly.take(1, now)
        return None

    def give_back(self, caller: str, resource: str, now: float) -> None:
        """Refund a request that was answered with 304, which is free."""
        hourly = self.hourly(caller, resource, now)
        if hourly is not None:
            hourly.used = max(hourly.used - 1, 0)

    def register(self, organization: str, now: float) -> LimitHit | None:
        """Count one registration of an organization, or return why it is refused."""
        if self._limits is None:
            return None
        bucket = self._registrations.get(organization)
        if bucket is None:
            bucket = self._registrations[organization] = Bucket(
                self._limits.registrations_per_5_minutes, REGISTRATION_WINDOW
            )
        return None if bucket.take(1, now) else _hit(bucket, now, primary=False)
