"""POST /webhook: which deliveries are believed, kept, ignored or turned away.

A delivery is answered 2xx only when it is durable or of no interest; what was not signed is
never parsed and never kept. What a job means is not decided here.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import structlog
from aiohttp import web
from multidict import MultiMapping

from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.store import Delivery, StoreError
from autoscaler.controller.ports.telemetry import Telemetry
from autoscaler.model.identifiers import Instant, Seconds
from autoscaler.server.bodies import MEBIBYTE, Bodies, BodyRefusedError
from autoscaler.server.completion import Completion
from autoscaler.server.refusal_log import RefusalLog

Verify = Callable[[bytes, str | None], bool]
"""Whether this X-Hub-Signature-256 header is the body's; must not raise."""

Fact = TypeVar("Fact")
"""What a body says. The server hands it on and does not look into it."""

Parse = Callable[[bytes, Instant], Fact | None]
"""Read a workflow_job body: None for one of no interest.

Raises ValueError, whose text says where it is wrong and holds nothing of the body.
"""

Accept = Callable[[Delivery, Fact], Awaitable[bool | None]]
"""Keep a delivery, durably on return; False if it is known, None if it need not be kept.

Raises StoreError. This is where another process can stand between the server and the ledger.
"""

_DELIVERY_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z-]{0,63}")
_EVENT = re.compile(r"[a-z][a-z_]{0,63}")
_LONGEST_SIGNATURE = 128
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
"""Every word that a delivery can be answered and counted with, and its HTTP status.

Counted besides, without an answer of ours: `aborted` (the peer left) and `failed` (a defect: 500).
"""

_REFUSED_BODIES: Final = {
    "too_large": "too_large",
    "too_slow": "too_slow",
    "encoded": "unsupported_type",
    "broken": "malformed",
    "busy": "shed",
}

_UNAVAILABLE = 503
_AGAIN = {"Retry-After": "5"}

_BODIES: Final = {
    word: f'{{"{"result" if status < 400 else "error"}":"{word}"}}'.encode()
    for word, status in ANSWERS.items()
}
"""Written once: an answer's body costs more to encode than its request takes to be checked."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class WebhookLimits:
    """`body` bytes a delivery (workflow_job has 12 to 25 KB; GitHub sends up to 25 MB).

    New deliveries are shed while the oldest one that waits to become durable has waited longer
    than `oldest_pending`: GitHub gives up after 10 s, so work begun later than that is lost. The
    number that waits is no measure: a group of any size is one commit.
    """

    body: int = MEBIBYTE
    body_timeout: Seconds = 10.0
    oldest_pending: Seconds = 5.0


class WebhookEndpoint(Generic[Fact]):
    """The webhook's route. The callables and ports decide; this class answers."""

    def __init__(
        self,
        verify: Verify,
        parse: Parse[Fact],
        accept: Accept[Fact],
        clock: Clock,
        telemetry: Telemetry,
        limits: WebhookLimits | None = None,
    ) -> None:
        self._verify = verify
        self._parse = parse
        self._accept = accept
        self._clock = clock
        self._telemetry = telemetry
        self._limits = limits or WebhookLimits()
        self._bodies = Bodies(self._limits.body, self._limits.body_timeout)
        self._completion = Completion()
        self._refusals = RefusalLog()

    def add_to(self, app: web.Application, patience: Seconds, /) -> None:
        """Put the route on a listener; `patience` is for what runs when the listener stops."""

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
        # By the system's time, not the controller's: GitHub's patience is real time.
        if self._completion.longest > self._limits.oldest_pending:
            return "shed"
        if not _is_json(request.headers):
            return "unsupported_type"
        async with self._bodies.read(request) as body:
            return await self.judge(request.headers, body, request.remote)

    async def judge(self, headers: MultiMapping[str], body: bytes, peer: str | None) -> str:
        """The word of ANSWERS for a delivery that was read whole; kept, if it is to be kept."""
        if not self._verify(body, _signature(headers)):
            self._refusals.note("delivery with a bad signature", peer=peer)
            return "bad_signature"
        delivery = _only(headers, "X-GitHub-Delivery")
        event = _only(headers, "X-GitHub-Event")
        if not (_DELIVERY_ID.fullmatch(delivery) and _EVENT.fullmatch(event)):
            self._refusals.note("signed delivery with malformed headers", peer=peer)
            return "malformed"
        if event != "workflow_job":
            return "ping" if event == "ping" else "ignored"
        return await self._judge_job(Delivery(delivery, event, self._clock.now(), body))

    async def _judge_job(self, delivery: Delivery) -> str:
        try:
            fact = self._parse(delivery.body, delivery.received_at)
        except (ValueError, RecursionError) as error:
            self._refusals.note("malformed delivery", delivery=delivery.id, reason=str(error))
            return "malformed"
        if fact is None:
            return "ignored"
        return await self._keep(delivery, self._accept(delivery, fact))

    async def _keep(self, delivery: Delivery, accepting: Awaitable[bool | None]) -> str:
        """Goes on when GitHub hangs up: half a commit is nobody's wish."""
        try:
            fresh = await self._completion.run(accepting)
        except StoreError as error:
            _log.error("delivery not stored", delivery=delivery.id, reason=str(error))
            return "store_failed"
        if fresh is None:
            return "ignored"
        return "accepted" if fresh else "duplicate"


def _only(headers: MultiMapping[str], name: str) -> str:
    """A header's value; empty where it is missing, or given twice and so of no one meaning."""
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
    if not header or len(header) > _LONGEST_SIGNATURE or not header.isascii():
        return None
    return header


def _answer(word: str) -> web.Response:
    status = ANSWERS[word]
    headers = _AGAIN if status == _UNAVAILABLE else None
    return web.Response(status=status, body=_BODIES[word], headers=headers, content_type=_JSON)
