"""The endpoint POST /webhook: accepts, ignores or refuses deliveries.

A delivery is answered 2xx only if it is durable or not needed. A delivery without a valid signature is
neither parsed nor stored.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import structlog
from aiohttp import web
from multidict import MultiMapping

from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.store import Delivery, StoreError
from autoscaler.controller.ports.telemetry import DeliveryTelemetry
from autoscaler.model.identifiers import Seconds
from autoscaler.server.bodies import MEBIBYTE, Bodies, BodyRefusedError
from autoscaler.server.completion import Completion
from autoscaler.server.refusal_log import RefusalLog

Verify = Callable[[bytes, str | None], bool]
"""Returns True if the X-Hub-Signature-256 header is valid for the body. Must not raise."""

Accept = Callable[[Delivery], Awaitable[bool | None]]
"""Parses a workflow_job delivery at once, and stores it durably. The result is False for a duplicate, and None
if the delivery is not needed.

Raises: ValueError when called, whose text names the wrong field and contains nothing of the body.
StoreError when awaited.
"""

_DELIVERY_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z-]{0,63}")
_EVENT = re.compile(r"[a-z][a-z_]{0,63}")
_MAX_SIGNATURE = 128
_JSON = "application/json"

ANSWERS: Final = {
    "accepted": 202,
    "duplicate": 200,
    "ignored": 202,
    "ping": 200,
    "malformed": 400,
    "bad_signature": 401,
    "too_slow": 408,
    "too_large": 413,
    "unsupported_type": 415,
    "shed": 503,
    "store_failed": 503,
}
"""The outcomes of a delivery, which metrics count, with their HTTP statuses.

Metrics also count `aborted` (the peer disconnected) and `failed` (a bug: 500).
"""

_REFUSED_BODIES: Final = {
    "too_large": "too_large",
    "too_slow": "too_slow",
    "encoded": "unsupported_type",
    "broken": "malformed",
    "busy": "shed",
}

_UNAVAILABLE = 503
_RETRY = {"Retry-After": "5"}

_BODIES: Final = {
    word: f'{{"{"result" if status < 400 else "error"}":"{word}"}}'.encode()
    for word, status in ANSWERS.items()
}
"""The answers' bodies, encoded once: encoding takes longer than checking a request."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class WebhookLimits:
    """Limits of the webhook endpoint.

    `body` is the maximum number of bytes of a delivery (workflow_job: 12 to 25 KB; GitHub sends up to
    25 MB). New deliveries are shed (503) while the oldest unstored one is older than `oldest_pending`:
    GitHub gives up after 10 s, so that later work is wasted. Their number is not limited, because one
    commit stores any number.
    """

    body: int = MEBIBYTE
    body_timeout: Seconds = 10.0
    oldest_pending: Seconds = 5.0


class WebhookEndpoint:
    """The webhook's route."""

    def __init__(
        self,
        verify: Verify,
        accept: Accept,
        clock: Clock,
        telemetry: DeliveryTelemetry,
        limits: WebhookLimits | None = None,
    ) -> None:
        self._verify = verify
        self._accept = accept
        self._clock = clock
        self._telemetry = telemetry
        self._limits = limits or WebhookLimits()
        self._bodies = Bodies(self._limits.body, self._limits.body_timeout)
        self._completion = Completion()
        self._refusals = RefusalLog()

    def add_to(self, app: web.Application, patience: Seconds, /) -> None:
        """Add the route to a listener. Unfinished work has `patience` seconds when the listener stops."""

        async def finish(_: web.Application) -> None:
            await self._completion.finish(patience)

        app.router.add_post("/webhook", self._handle)
        app.on_cleanup.append(finish)

    async def _handle(self, request: web.Request) -> web.Response:
        word = "failed"
        try:
            word = await self._receive(request)
        except BodyRefusedError as refused:
            word = _REFUSED_BODIES[refused.reason]
        except (asyncio.CancelledError, ConnectionError):
            word = "aborted"
            raise
        finally:
            self._telemetry.delivery(word)
        return _answer(word)

    async def _receive(self, request: web.Request) -> str:
        # Measured in real time, not by the controller's clock, since GitHub's timeout is real time.
        if self._completion.longest > self._limits.oldest_pending:
            return "shed"
        if not _is_json(request.headers):
            return "unsupported_type"
        async with self._bodies.read(request) as body:
            return await self.process_delivery(request.headers, body, request.remote)

    async def process_delivery(
        self, headers: MultiMapping[str], body: bytes, peer: str | None
    ) -> str:
        """Check a delivery, store it if it is needed, and return its outcome, a key of ANSWERS."""
        if not self._verify(body, _signature(headers)):
            self._refusals.note("delivery_signature_invalid", peer=peer)
            return "bad_signature"
        delivery = _only(headers, "X-GitHub-Delivery")
        event = _only(headers, "X-GitHub-Event")
        if not (_DELIVERY_ID.fullmatch(delivery) and _EVENT.fullmatch(event)):
            self._refusals.note("delivery_headers_malformed", peer=peer)
            return "malformed"
        if event != "workflow_job":
            return "ping" if event == "ping" else "ignored"
        return await self._process_job(Delivery(delivery, event, self._clock.now(), body))

    async def _process_job(self, delivery: Delivery) -> str:
        try:
            accepting = self._accept(delivery)
        except (ValueError, RecursionError) as error:
            self._refusals.note("delivery_malformed", delivery=delivery.id, reason=str(error))
            return "malformed"
        return await self._keep(delivery, accepting)

    async def _keep(self, delivery: Delivery, accepting: Awaitable[bool | None]) -> str:
        """Return the outcome. Storing continues if GitHub disconnects."""
        try:
            fresh = await self._completion.run(accepting)
        except StoreError as error:
            _log.error("delivery_not_stored", delivery=delivery.id, reason=str(error))
            return "store_failed"
        if fresh is None:
            return "ignored"
        return "accepted" if fresh else "duplicate"


def _only(headers: MultiMapping[str], name: str) -> str:
    """Return a header's value, or an empty string if it is missing or given twice."""
    found = headers.getall(name, [])
    return found[0] if len(found) == 1 else ""


def _is_json(headers: MultiMapping[str]) -> bool:
    """Return whether the media type is application/json, whatever its parameters are.

    aiohttp's `content_type` parses the parameters too, in a time that grows with the square of
    their number (email.message._parseparam): 1.2 s for 8 kB of semicolons.
    """
    return _only(headers, "Content-Type").partition(";")[0].strip().lower() == _JSON


def _signature(headers: MultiMapping[str]) -> str | None:
    header = _only(headers, "X-Hub-Signature-256")
    if not header or len(header) > _MAX_SIGNATURE or not header.isascii():
        return None
    return header


def _answer(word: str) -> web.Response:
    status = ANSWERS[word]
    headers = _RETRY if status == _UNAVAILABLE else None
    return web.Response(status=status, body=_BODIES[word], headers=headers, content_type=_JSON)
