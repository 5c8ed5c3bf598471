"""Webhook deliveries that failed at GitHub, and which of them to have repeated when.

GitHub never repeats a delivery by itself. Decides by what GitHub lists: a delivery (one guid)
none of whose tries succeeded is repeated at once, then 1, 2, 4 ... 15 minutes after the repeat
before, while it goes on failing. Never looks at a delivery's content.

Fields: docs.github.com REST "App webhooks": a list newest first, cursor pages; a repeated
delivery is a new entry with the same guid.
"""

from collections.abc import Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, RootModel

from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.github import Redelivered
from autoscaler.github.api import Api, read_as
from autoscaler.github.app_auth import App
from autoscaler.github.exchange import Answer, Effect, Importance, Request
from autoscaler.github.received import Received
from autoscaler.github.refusals import unanswered
from autoscaler.github.timestamps import instant_of
from autoscaler.model.identifiers import Instant, Seconds

MAX_REPEATS = 50
"""In one pass. Every 20 s that is 150 writes a minute, of 5 points each: under GitHub's 900."""

PENDING_FOR: Seconds = 600.0
"""GitHub waits 10 s for an answer: a try that has had no outcome for this long gets none."""

OVERLAP: Seconds = 30.0
"""A try may be listed only with its outcome, which takes GitHub 10 s at most and GHES 30, so this
much of what was read is read again: more would only cost calls."""

_FIRST_WAIT: Seconds = 60.0
_LONGEST_WAIT: Seconds = 900.0


class _ListedDelivery(Received):
    id: Annotated[int, Field(gt=0)]
    guid: Annotated[str, Field(min_length=1, max_length=128)]
    delivered_at: str
    status: str | None = None
    status_code: int | None = None


class _DeliveryPage(RootModel[list[_ListedDelivery]]):
    pass


@dataclass(frozen=True, slots=True)
class Try:
    """One attempt of GitHub's to deliver. `pending` is one that has no outcome yet, and may get one."""

    id: int
    guid: str
    at: Instant
    succeeded: bool
    pending: bool = False


@dataclass(frozen=True, slots=True)
class FailedDelivery:
    """A delivery that never arrived, by its newest try."""

    guid: str
    newest: int
    at: Instant


@dataclass(frozen=True, slots=True)
class _Repeats:
    """How often a delivery was asked for, and when it may be again."""

    count: int
    again_at: Instant


def failed_deliveries(
    tries: Iterable[Try], left: Mapping[str, FailedDelivery]
) -> dict[str, FailedDelivery]:
    """What has failed by these tries, and what was left from before and is not among them."""
    failed = dict(left)
    arrived = set()
    listed: dict[str, list[Try]] = {}
    for attempt in tries:
        listed.setdefault(attempt.guid, []).append(attempt)
    for guid, attempts in listed.items():
        if any(attempt.succeeded or attempt.pending for attempt in attempts):
            arrived.add(guid)
            continue
        newest = max(attempts, key=lambda attempt: (attempt.at, attempt.id))
        failed[guid] = FailedDelivery(guid, newest.id, newest.at)
    return {guid: delivery for guid, delivery in failed.items() if guid not in arrived}


class Redelivery:
    """Repeats one App's failed deliveries.

    What has failed, and how often it was repeated, is kept until a try of it is listed that
    arrived: each pass reads only what is new.
    """

    def __init__(self, app: App, api: Api, clock: Clock) -> None:
        self._app = app
        self._api = api
        self._clock = clock
        self._left: dict[str, FailedDelivery] = {}
        self._repeats: dict[str, _Repeats] = {}
        self._read_until: Instant = 0.0

    @property
    def app_id(self) -> int:
        """Whose deliveries these are."""
        return self._app.app_id

    async def run(self, since: Instant) -> Redelivered:
        """Repeat what failed since then, and shortly before. Raises as `Api.ask`."""
        began = self._clock.now()
        tries = await self._read(max(since, self._read_until) - OVERLAP)
        self._read_until = min([began, *(attempt.at for attempt in tries if attempt.pending)])
        now = self._clock.now()
        self._left = failed_deliveries(tries, self._left)
        self._repeats = {
            guid: repeats
            for guid, repeats in self._repeats.items()
            if guid in self._left or repeats.again_at > now
        }
        arrived_until = min([self._read_until, *(one.at for one in self._left.values())])
        due = [one for one in self._left.values() if self._so_far(one.guid).again_at <= now]
        due.sort(key=lambda delivery: delivery.at)
        asked = 0
        for delivery in due[:MAX_REPEATS]:
            asked += await self._repeat(delivery)
        return Redelivered(asked, arrived_until)

    def _so_far(self, guid: str) -> _Repeats:
        return self._repeats.get(guid, _Repeats(0, 0.0))

    async def _repeat(self, delivery: FailedDelivery) -> bool:
        request = Request(
            "POST",
            "/app/hook/deliveries/{delivery_id}/attempts",
            {"delivery_id": delivery.newest},
            effect=Effect.WRITE,
            importance=Importance.SYNC,
            expected=frozenset({400, 404, 422}),
        )
        # Noted first: a try whose outcome we do not learn is a try all the same.
        count, now = self._so_far(delivery.guid).count, self._clock.now()
        wait = min(_FIRST_WAIT * 2.0 ** min(count, 4), _LONGEST_WAIT)
        self._repeats[delivery.guid] = _Repeats(count + 1, now + wait)
        answer = await self._api.ask(request, self._app)
        if not answer.ok:
            # Past GitHub's window of three days, or not to be repeated: the others go on.
            del self._left[delivery.guid]
        return answer.ok

    async def _read(self, since: Instant) -> list[Try]:
        request = Request(
            "GET",
            "/app/hook/deliveries{?per_page}",
            {"per_page": 100},
            importance=Importance.SYNC,
        )
        tries: list[Try] = []
        async with aclosing(self._api.pages(request, self._app)) as pages:
            async for answer in pages:
                page = _tries(request, answer, self._clock.now())
                tries += [attempt for attempt in page if attempt.at >= since]
                if any(attempt.at < since for attempt in page):
                    break
        return tries


def _tries(request: Request, answer: Answer, now: Instant) -> list[Try]:
    try:
        return [_try(listed, now) for listed in read_as(_DeliveryPage, request, answer).root]
    except (ValueError, OverflowError):
        raise unanswered(request, "a delivery with a time that is none") from None


def _try(listed: _ListedDelivery, now: Instant) -> Try:
    at = instant_of(listed.delivered_at) or 0.0
    status = (listed.status or "").lower()
    code = listed.status_code or 0
    return Try(
        id=listed.id,
        guid=listed.guid,
        at=at,
        succeeded=200 <= code < 300 or status == "ok",
        pending=status == "pending" and now - at < PENDING_FOR,
    )
