"""How much of GitHub's limits each caller has left, and whether a request fits. Pure.

Values in, a decision out: moments are given, nothing is sent or waited for. It decides who is
held after a limit and what is kept back for more important requests, never when to ask again.

Limits: docs.github.com "Rate limits for the REST API": an hourly bucket for each App installation
and resource, told in every answer; a secondary limit of 900 points a minute for one endpoint
(a read costs 1, a write 5); after a secondary limit `retry-after`, or at least a minute and
longer each time.
"""

import math
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass

from autoscaler.github.exchange import Answer, Effect, Importance, Request
from autoscaler.github.policies import is_limit
from autoscaler.model.identifiers import Instant, Seconds

CORE = "core"
REGISTRATION = "actions_runner_registration"
"""GitHub's bucket for registering runners: 10,000 an hour where this was written."""

RESERVES: Mapping[Importance, float] = {
    Importance.REGISTER: 0.0,
    Importance.CHECK: 0.02,
    Importance.REMOVE: 0.05,
    Importance.SYNC: 0.2,
}
"""The share of a bucket, or of the connections, that is left to what is more important."""

_MINUTE = 60
_SECONDARY: Seconds = 60.0
_SHORTEST: Seconds = 1.0
_LONGEST: Seconds = 3600.0
_DOUBLINGS = 6
_MOST_BUCKETS = 10_000


@dataclass(frozen=True, slots=True)
class Reading:
    """What GitHub said of one bucket. `reset_at` is when it is full again, by its clock."""

    resource: str
    limit: int
    remaining: int
    reset_at: Instant


@dataclass(frozen=True, slots=True)
class Shortage:
    """A request does not fit now; it may in so many seconds."""

    seconds: Seconds
    why: str


@dataclass(slots=True)
class _Hold:
    until: Instant = 0.0
    failures: int = 0

    def extend(self, answer: Answer, now: Instant) -> None:
        if self.until <= now:  # refusals of requests that were under way together are one strike
            self.failures += 1
        delay = delay_of(answer, now, _SECONDARY * 2.0 ** min(self.failures - 1, _DOUBLINGS))
        self.until = max(self.until, now + delay)


class _Points:
    """Points spent on one endpoint over the last minute, by the second."""

    def __init__(self) -> None:
        self._spent: deque[tuple[int, int]] = deque()
        self.total = 0

    def forget(self, now: Instant) -> None:
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
        """Seconds until `cost` more fits under `limit`; 0.0 when it does."""
        excess = self.total + cost - limit
        for second, spent in self._spent:
            if excess <= 0:
                break
            excess -= spent
            if excess <= 0:
                return second + _MINUTE - now
        return 0.0


class Budget:
    """Every caller's buckets, points and holds. Few: one for each App or installation and route.

    `points_per_minute` is GitHub's secondary limit for one endpoint; None where it has none.
    """

    def __init__(self, points_per_minute: int | None) -> None:
        self._points_per_minute = points_per_minute
        self._holds: dict[tuple[str, bool], _Hold] = {}
        self._buckets: dict[tuple[str, str], Reading] = {}
        self._under_way: dict[str, Counter[str]] = {}
        self._points: dict[tuple[str, str], _Points] = {}
        self._resources: dict[str, str] = {}

    def shortage(self, caller: str, request: Request, now: Instant) -> Shortage | None:
        """Why this request has to stay here, or None."""
        held = self.held(caller, request, now)
        if held:
            return Shortage(held, "held by an earlier limit")
        bucket = self._bucket(caller, request, now)
        if bucket is not None:
            reserve = math.floor(bucket.limit * RESERVES[request.importance])
            if self._left(caller, bucket) <= reserve:
                why = f"held: what is left of {bucket.resource} is kept for what matters more"
                if not reserve:
                    why = f"held: {bucket.resource} is used up"
                return Shortage(self._until(bucket.reset_at, now), why)
        wait = self._wait_for_points(caller, request, now)
        return Shortage(wait, "held: this minute's points are spent") if wait else None

    def held(self, caller: str, request: Request, now: Instant) -> Seconds:
        """How long this caller must still leave GitHub alone after a limit."""
        hold = self._holds.get(_hold_key(caller, request))
        return max(0.0, hold.until - now) if hold is not None else 0.0

    def room(self, caller: str, request: Request, now: Instant) -> float:
        """How many requests like this one fit now; infinity where GitHub has told no limit."""
        if self.held(caller, request, now):
            return 0.0
        bucket = self._bucket(caller, request, now)
        left = math.inf if bucket is None else float(max(0, self._left(caller, bucket)))
        if self._points_per_minute is None:
            return left
        free = self._points_per_minute - self.spent(caller, request, now)
        return min(left, float(max(0, free // request.points)))

    def pace(self, caller: str, request: Request, now: Instant, untold: int | None) -> float:
        """How many requests like this one a second fit until the hour is over.

        `untold` is what an hour is taken to hold where GitHub has not said; None for no limit.
        """
        if self.held(caller, request, now):
            return 0.0
        kept_back = RESERVES[request.importance]
        bucket = self._bucket(caller, request, now)
        if bucket is None:
            return math.inf if untold is None else untold * (1.0 - kept_back) / _LONGEST
        free = self._left(caller, bucket) - math.floor(bucket.limit * kept_back)
        return max(0, free) / max(bucket.reset_at - now, _SHORTEST)

    def spent(self, caller: str, request: Request, now: Instant) -> int:
        """Points that this caller has spent on the endpoint within the last minute."""
        points = self._points.get((caller, request.endpoint))
        if points is None:
            return 0
        points.forget(now)
        return points.total

    def knows(self, caller: str, request: Request, now: Instant) -> bool:
        """Whether GitHub has told what is left of the bucket that this request counts in."""
        return self._bucket(caller, request, now) is not None

    def begin(self, caller: str, request: Request, now: Instant) -> None:
        """The request is sent now."""
        points = self._points.setdefault((caller, request.endpoint), _Points())
        points.forget(now)
        points.add(request.points, now)
        self._resources.setdefault(request.endpoint, self.resource_of(request))
        self._under_way.setdefault(caller, Counter())[request.endpoint] += 1

    def finish(self, caller: str, request: Request, answer: Answer | None, now: Instant) -> None:
        """It was answered, or nothing readable came back."""
        self._under_way[caller][request.endpoint] -= 1
        if answer is None:
            return
        hold = self._holds.setdefault(_hold_key(caller, request), _Hold())
        if is_limit(answer):
            hold.extend(answer, now)
        elif answer.ok and hold.until <= now:
            hold.failures = 0
        reading = reading_of(answer, self.resource_of(request), now)
        if reading is not None:
            self._resources[request.endpoint] = reading.resource
            self.learn(caller, reading, now)

    def learn(self, caller: str, reading: Reading, now: Instant) -> None:
        """Take in what GitHub said of a bucket. Answers overtake each other: the least counts."""
        key = caller, reading.resource
        known = self._buckets.get(key)
        if known is not None and now < known.reset_at and _same_hour(known, reading):
            reading = min(known, reading, key=lambda one: one.remaining)
        if known is not None or len(self._buckets) < _MOST_BUCKETS:
            self._buckets[key] = reading

    def resource_of(self, request: Request) -> str:
        """The bucket that the request counts in, as far as GitHub has told."""
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
        points.forget(now)
        return points.wait_for(request.points, self._points_per_minute, now)

    @staticmethod
    def _until(moment: Instant, now: Instant) -> Seconds:
        return min(max(moment - now, _SHORTEST), _LONGEST)


def delay_of(answer: Answer, now: Instant, otherwise: Seconds) -> Seconds:
    """How long to wait by the answer's own headers, within a second and an hour."""
    delay: Seconds | None = number(answer.headers.get("retry-after"))
    if delay is None and answer.headers.get("x-ratelimit-remaining") == "0":
        reset = number(answer.headers.get("x-ratelimit-reset"))
        delay = None if reset is None else reset - now
    return min(max(otherwise if delay is None else delay, _SHORTEST), _LONGEST)


def reading_of(answer: Answer, otherwise: str, now: Instant) -> Reading | None:
    """What the answer's headers say of a bucket, `otherwise` where they do not name it."""
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
    """A whole number of a header, of 15 digits at most; None for anything else."""
    if text is None or not text.isascii() or not text.isdigit():
        return None
    return min(int(text[:16]), 10**15)


def _same_hour(known: Reading, told: Reading) -> bool:
    return abs(known.reset_at - told.reset_at) <= _SHORTEST * 2


def _hold_key(caller: str, request: Request) -> tuple[str, bool]:
    # A limit on registering is no limit on questions, nor the other way round.
    return caller, request.effect is Effect.REGISTER
