"""Finds webhook deliveries that failed, and asks GitHub to redeliver them.

GitHub does not redeliver by itself. A delivery (one guid) of an event that the controller uses has failed if
GitHub lists neither a successful attempt nor a final answer. The controller asks for redelivery at once, then
after 1, 2, 4, 8, 15, 15 ... minutes while the delivery keeps failing.

Fields: docs.github.com REST "App webhooks": newest first, in cursor pages; each redelivery is a new
entry with the same guid.
"""

from collections.abc import Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, RootModel

from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.github import Redelivered
from autoscaler.github.apps.authentication import App
from autoscaler.github.requests.api import Api, read_as
from autoscaler.github.requests.exchange import Answer, Effect, Importance, Request
from autoscaler.github.requests.outcomes import unusable_answer
from autoscaler.github.requests.received import Received, instant_of
from autoscaler.model.backoff import Backoff
from autoscaler.model.identifiers import Instant, Seconds

MAX_REPEATS = 50
"""Redeliveries in one run. One run every 20 s makes 150 a minute, 750 of GitHub's 900 points."""

PENDING_FOR: Seconds = 600.0
"""Seconds after which a pending attempt counts as failed; GitHub waits 10 s for an answer."""

OVERLAP: Seconds = 30.0
"""Seconds of the list that each run reads again. GitHub may list an attempt only once it has an
outcome: after 10 s at most, after 30 s on an Enterprise Server."""

_USED = frozenset({"workflow_job", None})
"""The events to ask for. None: GitHub did not say."""

_FINAL = frozenset({400, 413})
"""The controller's answers that another attempt would get, too: it cannot read the body (server/webhook.py)."""

_AGAIN = Backoff(60.0, 900.0)


class _ListedDelivery(Received):
    id: Annotated[int, Field(gt=0)]
    guid: Annotated[str, Field(min_length=1, max_length=128)]
    delivered_at: str
    status: str | None = None
    status_code: int | None = None
    event: str | None = None


class _DeliveryPage(RootModel[list[_ListedDelivery]]):
    pass


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt to deliver. `pending`: GitHub may still report its outcome.

    `over`: it succeeded, or no further attempt is of use.
    """

    id: int
    guid: str
    at: Instant
    over: bool
    pending: bool = False


@dataclass(frozen=True, slots=True)
class _Redeliveries:
    """How often a redelivery was requested, and the earliest time of the next request."""

    count: int
    again_at: Instant


def failed_deliveries(
    attempts: Iterable[Attempt], known: Mapping[str, Attempt]
) -> dict[str, Attempt]:
    """Return the newest attempt of each failed delivery: those in `known`, and newly listed attempts."""
    failed = dict(known)
    listed: dict[str, list[Attempt]] = {}
    for attempt in attempts:
        listed.setdefault(attempt.guid, []).append(attempt)
    for guid, of_delivery in listed.items():
        if any(attempt.over or attempt.pending for attempt in of_delivery):
            failed.pop(guid, None)
        else:
            failed[guid] = max(of_delivery, key=lambda attempt: (attempt.at, attempt.id))
    return failed


class Redelivery:
    """Asks GitHub to redeliver one App's failed deliveries.

    Keeps each failed delivery until an attempt succeeds, so that a run reads only new attempts.
    """

    def __init__(self, app: App, api: Api, clock: Clock) -> None:
        self._app = app
        self._api = api
        self._clock = clock
        self._failed: dict[str, Attempt] = {}
        self._requested: dict[str, _Redeliveries] = {}
        self._read_until: Instant = 0.0

    @property
    def app_id(self) -> int:
        """The id of the App."""
        return self._app.app_id

    async def run(self, since: Instant) -> Redelivered:
        """Request the redelivery of what failed after `since - OVERLAP`. Raises as `Api.ask`."""
        began = self._clock.now()
        attempts = await self._read(max(since, self._read_until) - OVERLAP)
        self._read_until = min([began, *(attempt.at for attempt in attempts if attempt.pending)])
        now = self._clock.now()
        self._failed = failed_deliveries(attempts, self._failed)
        self._requested = {
            guid: requested
            for guid, requested in self._requested.items()
            if guid in self._failed or requested.again_at > now
        }
        arrived_until = min([self._read_until, *(one.at for one in self._failed.values())])
        due = [one for one in self._failed.values() if self._so_far(one.guid).again_at <= now]
        due.sort(key=lambda delivery: delivery.at)
        asked = 0
        for delivery in due[:MAX_REPEATS]:
            asked += await self._redeliver(delivery)
        return Redelivered(asked, arrived_until)

    def _so_far(self, guid: str) -> _Redeliveries:
        return self._requested.get(guid, _Redeliveries(0, 0.0))

    async def _redeliver(self, delivery: Attempt) -> bool:
        request = Request(
            "POST",
            "/app/hook/deliveries/{delivery_id}/attempts",
            {"delivery_id": delivery.id},
            effect=Effect.WRITE,
            importance=Importance.SYNC,
            expected=frozenset({400, 404, 422}),
        )
        # Counted before it is sent: a request without an answer counts too.
        count, now = self._so_far(delivery.guid).count, self._clock.now()
        self._requested[delivery.guid] = _Redeliveries(count + 1, now + _AGAIN.delay(count))
        answer = await self._api.ask(request, self._app)
        if not answer.ok:
            # GitHub redelivers for three days only, and refuses some deliveries.
            del self._failed[delivery.guid]
        return answer.ok

    async def _read(self, since: Instant) -> list[Attempt]:
        request = Request(
            "GET",
            "/app/hook/deliveries{?per_page}",
            {"per_page": 100},
            importance=Importance.SYNC,
        )
        attempts: list[Attempt] = []
        async with aclosing(self._api.pages(request, self._app)) as pages:
            async for answer in pages:
                page = _attempts(request, answer, self._clock.now())
                attempts += [attempt for attempt in page if attempt.at >= since]
                if any(attempt.at < since for attempt in page):
                    break
        return attempts


class NoDeliveries:
    """Stands in for the Redelivery of an App without webhooks: no delivery is missing.

    Does not read the list of deliveries: an App whose webhook is off has none, and deliveries of a webhook
    that leads elsewhere are not this controller's.
    """

    def __init__(self, app: App, api: Api, clock: Clock) -> None:
        self._app = app
        self._api = api
        self._clock = clock

    @property
    def app_id(self) -> int:
        """The id of the App."""
        return self._app.app_id

    async def run(self, since: Instant) -> Redelivered:  # noqa: ARG002
        """Ask GitHub for the App, to know that it answers. Raises as `Api.ask`."""
        now = self._clock.now()
        await self._api.ask(Request("GET", "/app", {}, importance=Importance.SYNC), self._app)
        return Redelivered(0, now)


def _attempts(request: Request, answer: Answer, now: Instant) -> list[Attempt]:
    try:
        return [_attempt(listed, now) for listed in read_as(_DeliveryPage, request, answer).root]
    except (ValueError, OverflowError):
        raise unusable_answer(request, "a delivery with an invalid timestamp") from None


def _attempt(listed: _ListedDelivery, now: Instant) -> Attempt:
    at = instant_of(listed.delivered_at) or 0.0
    status = (listed.status or "").lower()
    code = listed.status_code or 0
    return Attempt(
        id=listed.id,
        guid=listed.guid,
        at=at,
        over=200 <= code < 300 or status == "ok" or code in _FINAL or listed.event not in _USED,
        pending=status == "pending" and now - at < PENDING_FOR,
    )
