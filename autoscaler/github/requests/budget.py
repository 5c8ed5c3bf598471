"""Tracks how much of GitHub's rate limits each caller has left, and whether a request fits. Pure.

Reserves a share of each limit for more important requests, and stops a caller after a rate limit.

Limits: docs.github.com "Rate limits for the REST API": an hourly bucket for each App installation
and resource, reported in every answer; a secondary limit of 900 points a minute for one endpoint
(a read costs 1, a write 5); after a secondary limit `retry-after`, or at least a minute and
longer each time.
"""

import math
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass

from autoscaler.github.requests.exchange import Answer, Effect, Importance, Request
from autoscaler.github.requests.outcomes import limit_of
from autoscaler.model.backoff import Backoff
from autoscaler.model.cooldowns import RateLimit
from autoscaler.model.identifiers import Instant, Seconds

CORE = "core"
REGISTRATION = "actions_runner_registration"
"""GitHub's bucket for registering runners: 10,000 an hour on github.com."""

RESERVES: Mapping[Importance, float] = {
    Importance.REGISTER: 0.0,
    Importance.CHECK: 0.02,
    Importance.REMOVE: 0.05,
    Importance.SYNC: 0.2,
}
"""The share of a bucket, and of the connections, that is reserved for more important requests."""

_MINUTE = 60
_SHORTEST: Seconds = 1.0
_LONGEST: Seconds = 3600.0
_SECONDARY = Backoff(60.0, _LONGEST)
_MOST_BUCKETS = 10_000


@dataclass(frozen=True, slots=True)
class Reading:
    """The state of one bucket as GitHub reported it. `reset_at` is in GitHub's time."""

    resource: str
    limit: int
    remaining: int
    reset_at: Instant


@dataclass(frozen=True, slots=True)
class Shortage:
    """The reason a request does not fit now, the seconds until it may, and the rate limit that stops it."""

    seconds: Seconds
    why: str
    limit: RateLimit


@dataclass(slots=True)
class _Backoff:
    until: Instant = 0.0
    failures: int = 0
    limit: RateLimit = RateLimit.SECONDARY

    def extend(self, answer: Answer, limit: RateLimit, now: Instant) -> None:
        self.limit = limit
        if self.until <= now:  # refusals of concurrent requests count as one failure
            self.failures += 1
        delay = delay_of(answer, now, _SECONDARY.delay(self.failures - 1))
        self.until = max(self.until, now + delay)


class _Points:
    """Points spent on one endpoint in each second of the last minute."""

    def __init__(self) -> None:
        self._spent: deque[tuple[int, int]] = deque()
        self.total = 0

    def prune(self, now: Instant) -> None:
        while self._spent and self._spent[0][0] + _MINUTE <= now:
            self.total -= self._spent.popleft()[1]

    def add(self, cost: int, now: Instant) -> None:
        second = math.floor(now)
        if self._spent and self._spent[-1][0] == second:
            cost_so_far = self._spent.pop()[1]
            self._spent.append((second, cost_so_far + cost))
        else:
            self._spent.append((second, cost))
        self.total += cost

    def wait_for(self, cost: int, limit: int, now: Instant) -> Seconds:
        """Return the seconds until `cost` more points fit under `limit`; 0.0 if they fit now."""
        excess = self.total + cost - limit
        for second, spent in self._spent:
            if excess <= 0:
                break
            excess -= spent
            if excess <= 0:
                return second + _MINUTE - now
        return 0.0


class Budget:
    """The buckets, points and back-offs of all callers, by App or installation and endpoint.

    `points_per_minute` is GitHub's secondary limit for one endpoint, or None for no limit.
    """

    def __init__(self, points_per_minute: int | None) -> None:
        self._points_per_minute = points_per_minute
        self._backoffs: dict[tuple[str, bool], _Backoff] = {}
        self._buckets: dict[tuple[str, str], Reading] = {}
        self._under_way: dict[str, Counter[str]] = {}
        self._points: dict[tuple[str, str], _Points] = {}
        self._resources: dict[str, str] = {}

    def shortage(self, caller: str, request: Request, now: Instant) -> Shortage | None:
        """Return why this request may not be sent now, or None if it may."""
        wait = self.backoff(caller, request, now)
        if wait:
            limit = self._backoffs[_backoff_key(caller, request)].limit
            why = f"not sent: GitHub's {limit.replace('_', ' ')} stopped this App earlier"
            return Shortage(wait, why, limit)
        bucket = self._bucket(caller, request, now)
        if bucket is not None:
            reserve = math.floor(bucket.limit * RESERVES[request.importance])
            if self._left(caller, bucket) <= reserve:
                why = f"not sent: the rest of {bucket.resource} is for more important requests"
                if not reserve:
                    why = f"not sent: the rate limit {bucket.resource} is used up"
                return Shortage(self._until(bucket.reset_at, now), why, RateLimit.PRIMARY)
        wait = self._wait_for_points(caller, request, now)
        why = "not sent: the points of this endpoint are spent for this minute"
        return Shortage(wait, why, RateLimit.SECONDARY) if wait else None

    def backoff(self, caller: str, request: Request, now: Instant) -> Seconds:
        """Return for how long this caller must send nothing, because it met a rate limit."""
        backoff = self._backoffs.get(_backoff_key(caller, request))
        return max(0.0, backoff.until - now) if backoff is not None else 0.0

    def headroom(self, caller: str, request: Request, now: Instant) -> float:
        """Return how many requests like this one fit now; infinity if GitHub reported no limit."""
        if self.backoff(caller, request, now):
            return 0.0
        bucket = self._bucket(caller, request, now)
        left = math.inf if bucket is None else float(max(0, self._left(caller, bucket)))
        if self._points_per_minute is None:
            return left
        free = self._points_per_minute - self.spent(caller, request, now)
        return min(left, float(max(0, free // request.points)))

    def pace(self, caller: str, request: Request, now: Instant, assumed: int | None) -> float:
        """Return how many requests like this one fit per second until the bucket is reset.

        `assumed` is the hourly limit until GitHub reports one, or None for no limit.
        """
        if self.backoff(caller, request, now):
            return 0.0
        reserve = RESERVES[request.importance]
        bucket = self._bucket(caller, request, now)
        if bucket is None:
            return math.inf if assumed is None else assumed * (1.0 - reserve) / _LONGEST
        free = self._left(caller, bucket) - math.floor(bucket.limit * reserve)
        return max(0, free) / max(bucket.reset_at - now, _SHORTEST)

    def spent(self, caller: str, request: Request, now: Instant) -> int:
        """Return the points that this caller spent on the endpoint in the last minute."""
        points = self._points.get((caller, request.endpoint))
        if points is None:
            return 0
        points.prune(now)
        return points.total

    def has_reading(self, caller: str, request: Request, now: Instant) -> bool:
        """Return whether GitHub has reported the bucket that this request counts in."""
        return self._bucket(caller, request, now) is not None

    def begin(self, caller: str, request: Request, now: Instant) -> None:
        """Record that the request is sent now."""
        points = self._points.setdefault((caller, request.endpoint), _Points())
        points.prune(now)
        points.add(request.points, now)
        self._resources.setdefault(request.endpoint, self.resource_of(request))
        self._under_way.setdefault(caller, Counter())[request.endpoint] += 1

    def finish(self, caller: str, request: Request, answer: Answer | None, now: Instant) -> None:
        """Record the answer to a request, or None if no readable answer arrived."""
        self._under_way[caller][request.endpoint] -= 1
        if answer is None:
            return
        backoff = self._backoffs.setdefault(_backoff_key(caller, request), _Backoff())
        limit = limit_of(answer)
        if limit is not None:
            backoff.extend(answer, limit, now)
        elif answer.ok and backoff.until <= now:
            backoff.failures = 0
        reading = reading_of(answer, self.resource_of(request), now)
        if reading is not None:
            self._resources[request.endpoint] = reading.resource
            self.record(caller, reading, now)

    def record(self, caller: str, reading: Reading, now: Instant) -> None:
        """Record a bucket. Keeps the smallest rest of an hour, because answers arrive out of order."""
        key = caller, reading.resource
        known = self._buckets.get(key)
        if known is not None and now < known.reset_at and _same_hour(known, reading):
            reading = min(known, reading, key=lambda one: one.remaining)
        if known is not None or len(self._buckets) < _MOST_BUCKETS:
            self._buckets[key] = reading

    def resource_of(self, request: Request) -> str:
        """Return the bucket that the request counts in: GitHub's last report, or the usual one."""
        default = REGISTRATION if request.effect is Effect.REGISTER else CORE
        return self._resources.get(request.endpoint, default)

    def _bucket(self, caller: str, request: Request, now: Instant) -> Reading | None:
        bucket = self._buckets.get((caller, self.resource_of(request)))
        return bucket if bucket is not None and bucket.reset_at > now else None

    def _left(self, caller: str, bucket: Reading) -> int:
        under_way = self._under_way.get(caller, Counter[str]())
        return bucket.remaining - sum(
            count
            for endpoint, count in under_way.items()
            if self._resources[endpoint] == bucket.resource
        )

    def _wait_for_points(self, caller: str, request: Request, now: Instant) -> Seconds:
        points = self._points.get((caller, request.endpoint))
        if points is None or self._points_per_minute is None:
            return 0.0
        points.prune(now)
        return points.wait_for(request.points, self._points_per_minute, now)

    @staticmethod
    def _until(moment: Instant, now: Instant) -> Seconds:
        return min(max(moment - now, _SHORTEST), _LONGEST)


def delay_of(answer: Answer, now: Instant, otherwise: Seconds) -> Seconds:
    """Return the wait that the answer's headers ask for, from a second to an hour."""
    delay: Seconds | None = number(answer.headers.get("retry-after"))
    if delay is None and answer.headers.get("x-ratelimit-remaining") == "0":
        reset = number(answer.headers.get("x-ratelimit-reset"))
        delay = None if reset is None else reset - now
    return min(max(otherwise if delay is None else delay, _SHORTEST), _LONGEST)


def reading_of(answer: Answer, otherwise: str, now: Instant) -> Reading | None:
    """Return the bucket in the answer's headers, or None. `otherwise` is its name by default."""
    remaining = number(answer.headers.get("x-ratelimit-remaining"))
    if remaining is None:
        return None
    limit = number(answer.headers.get("x-ratelimit-limit"))
    reset = number(answer.headers.get("x-ratelimit-reset"))
    return Reading(
        resource=answer.headers.get("x-ratelimit-resource", "")[:64] or otherwise,
        limit=remaining if limit is None else limit,
        remaining=remaining,
        reset_at=now + _MINUTE if reset is None else min(float(reset), now + _LONGEST),
    )


def number(text: str | None) -> int | None:
    """Return a header's whole number, at most 10**15; None for any other text."""
    if text is None or not text.isascii() or not text.isdigit():
        return None
    return min(int(text[:16]), 10**15)


def _same_hour(known: Reading, reading: Reading) -> bool:
    return abs(known.reset_at - reading.reset_at) <= _SHORTEST * 2


def _backoff_key(caller: str, request: Request) -> tuple[str, bool]:
    # GitHub limits registrations separately from all other requests.
    return caller, request.effect is Effect.REGISTER
