"""The endpoint POST /webhook: accepts, ignores or refuses deliveries.

A delivery is answered 2xx only if it is durable or not needed. A delivery without a valid signature is
neither parsed nor stored.
"""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import structlog
from aiohttp import web
from multidict import MultiMapping

from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.store import Delivery, StoreError
from autoscaler.controller.ports.telemetry import Telemetry
from autoscaler.model.deliveries import DeliveryAnswer
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
_EVENT = re.compile(r"[a-z][a-z0-9_]{0,63}")
_NEEDED: Final = frozenset({"ping", "workflow_job"})
_MAX_SIGNATURE = 128
_JSON = "application/json"
_MALFORMED_HEADERS = "X-GitHub-Delivery or X-GitHub-Event is missing, given twice or malformed"

ANSWERS: Final = {
    DeliveryAnswer.ACCEPTED: 202,
    DeliveryAnswer.DUPLICATE: 200,
    DeliveryAnswer.IGNORED: 202,
    DeliveryAnswer.PING: 200,
    DeliveryAnswer.MALFORMED: 400,
    DeliveryAnswer.BAD_SIGNATURE: 401,
    DeliveryAnswer.TOO_SLOW: 408,
    DeliveryAnswer.TOO_LARGE: 413,
    DeliveryAnswer.UNSUPPORTED_TYPE: 415,
    DeliveryAnswer.SHED: 503,
    DeliveryAnswer.STORE_STALLED: 503,
    DeliveryAnswer.STORE_FAILED: 503,
}
"""The HTTP statuses of the outcomes that have an answer."""

MESSAGES: Final = {
    DeliveryAnswer.MALFORMED: "The request is not a webhook delivery that this controller can read.",
    DeliveryAnswer.BAD_SIGNATURE: "The delivery is not signed with a secret of webhook_secret_file.",
    DeliveryAnswer.TOO_SLOW: "The body did not arrive in time.",
    DeliveryAnswer.TOO_LARGE: "The body is larger than the controller accepts.",
    DeliveryAnswer.UNSUPPORTED_TYPE: "The webhook's content type must be application/json, uncompressed.",
    DeliveryAnswer.SHED: "Too many deliveries arrive at once. The controller will ask for a redelivery.",
    DeliveryAnswer.STORE_STALLED: "The store ends no write. The controller will ask for a redelivery.",
    DeliveryAnswer.STORE_FAILED: "The store failed. The controller will ask for a redelivery.",
}
"""What GitHub's list of recent deliveries shows for a refused one. It contains nothing of the request."""

_REFUSED_BODIES: Final = {
    "too_large": DeliveryAnswer.TOO_LARGE,
    "too_slow": DeliveryAnswer.TOO_SLOW,
    "encoded": DeliveryAnswer.UNSUPPORTED_TYPE,
    "broken": DeliveryAnswer.MALFORMED,
    "busy": DeliveryAnswer.SHED,
}

_UNAVAILABLE = 503
_RETRY = {"Retry-After": "5"}

_BODIES: Final = {
    answer: json.dumps(
        {"error": answer, "reason": MESSAGES[answer]} if answer in MESSAGES else {"result": answer},
        separators=(",", ":"),
    ).encode()
    for answer in ANSWERS
}
"""The answers' bodies, encoded once: encoding takes longer than checking a request."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class WebhookLimits:
    """Limits of the webhook endpoint.

    `body` is the maximum number of bytes of a delivery (workflow_job: 12 to 25 KB; GitHub sends up to
    25 MB). New deliveries are refused (503) while deliveries wait for the store and it has ended no write for
    `store_stalled` and then `recheck` seconds: GitHub gives up after 10 s. How long a delivery waits on a busy
    host does not count, and neither does their number, because one commit stores any number.
    """

    body: int = MEBIBYTE
    body_timeout: Seconds = 10.0
    store_stalled: Seconds = 5.0
    recheck: Seconds = 1.0


class WebhookEndpoint:
    """The webhook's route."""

    def __init__(
        self,
        verify: Verify,
        accept: Accept,
        clock: Clock,
        telemetry: Telemetry,
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
        answer = DeliveryAnswer.FAILED
        try:
            answer = await self._receive(request)
        except BodyRefusedError as refused:
            answer = self._refuse(_REFUSED_BODIES[refused.reason], request.remote)
        except (asyncio.CancelledError, ConnectionError):
            answer = DeliveryAnswer.ABORTED
            raise
        finally:
            self._telemetry.delivery(answer)
        return _answer(answer)

    async def _receive(self, request: web.Request) -> DeliveryAnswer:
        event = _only(request.headers, "X-GitHub-Event")
        if _EVENT.fullmatch(event) and event not in _NEEDED:
            return DeliveryAnswer.IGNORED  # whatever its body, which may have 25 MB
        if not _is_json(request.headers):
            return self._refuse(DeliveryAnswer.UNSUPPORTED_TYPE, request.remote)
        async with self._bodies.read(request) as body:
            return await self.process_delivery(request.headers, body, request.remote)

    async def process_delivery(
        self, headers: MultiMapping[str], body: bytes, peer: str | None
    ) -> DeliveryAnswer:
        """Check a delivery, store it if it is needed, and return its outcome, a key of ANSWERS."""
        if not self._verify(body, _signature(headers)):
            return self._refuse(DeliveryAnswer.BAD_SIGNATURE, peer)
        delivery = _only(headers, "X-GitHub-Delivery")
        event = _only(headers, "X-GitHub-Event")
        if not (_DELIVERY_ID.fullmatch(delivery) and _EVENT.fullmatch(event)):
            return self._refuse(DeliveryAnswer.MALFORMED, peer, reason=_MALFORMED_HEADERS)
        if event not in _NEEDED:
            return DeliveryAnswer.IGNORED
        if event == "ping":
            return DeliveryAnswer.PING
        return await self._process_job(Delivery(delivery, event, self._clock.now(), body), peer)

    async def _process_job(self, delivery: Delivery, peer: str | None) -> DeliveryAnswer:
        # Measured in real time, not by the controller's clock, since GitHub's timeout is real time.
        if await self._completion.is_stuck(self._limits.store_stalled, self._limits.recheck):
            return self._refuse(DeliveryAnswer.STORE_STALLED, peer, delivery=delivery.id)
        try:
            accepting = self._accept(delivery)
        except (ValueError, RecursionError) as error:
            return self._refuse(
                DeliveryAnswer.MALFORMED, peer, delivery=delivery.id, reason=str(error)
            )
        return await self._keep(delivery, accepting)

    async def _keep(self, delivery: Delivery, accepting: Awaitable[bool | None]) -> DeliveryAnswer:
        """Return the outcome. Storing continues if GitHub disconnects."""
        try:
            fresh = await self._completion.run(accepting)
        except StoreError as error:
            code = DeliveryAnswer.STORE_FAILED
            _log.error("delivery_not_stored", code=code, delivery=delivery.id, reason=str(error))
            return code
        if fresh is None:
            return DeliveryAnswer.IGNORED
        return DeliveryAnswer.ACCEPTED if fresh else DeliveryAnswer.DUPLICATE

    def _refuse(
        self, code: DeliveryAnswer, peer: str | None, *, delivery: str = "", reason: str = ""
    ) -> DeliveryAnswer:
        """Log a refusal and return its code. The log gets the reason of this delivery, if it is known."""
        self._refusals.note(
            "delivery_refused",
            code,
            code=code,
            reason=reason or MESSAGES[code],
            peer=peer,
            delivery=delivery or None,
        )
        return code


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


def _answer(answer: DeliveryAnswer) -> web.Response:
    status = ANSWERS[answer]
    headers = _RETRY if status == _UNAVAILABLE else None
    return web.Response(status=status, body=_BODIES[answer], headers=headers, content_type=_JSON)
