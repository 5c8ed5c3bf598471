"""The endpoints /healthz, /readyz and /metrics. Callables supply their content."""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence

from aiohttp import web

from autoscaler.model.identifiers import Seconds
from autoscaler.server.answers import error_answer, json_answer
from autoscaler.server.tokens import BearerTokens

Reasons = Callable[[], Sequence[str]]
"""Returns why the check fails, as text; empty if it succeeds. The text is public: no secrets."""

Exposition = Callable[[], tuple[Iterable[bytes], str]]
"""Returns the metrics as pieces of text, and their content type. A thread reads the pieces.

The values may change between two pieces.
"""

METRICS_AGE: Seconds = 1.0
"""How long an answer of /metrics is reused."""

PIECE_BYTES = 16_384
"""After this much text of metrics, which usually takes 2 ms of CPU time, the thread waits for `PIECE_PAUSE`."""

PIECE_PAUSE: Seconds = 0.005


class HealthEndpoint:
    """The health and metrics routes.

    `unhealthy` gives reasons to restart this process (its control loop hangs), `unready` reasons to send
    it no requests yet.
    """

    def __init__(
        self,
        unhealthy: Reasons,
        unready: Reasons,
        metrics: Exposition,
        metrics_tokens: Sequence[bytes] = (),
        metrics_age: Seconds = METRICS_AGE,
    ) -> None:
        """If there are `metrics_tokens`, /metrics requires one of them. The other routes need no token."""
        self._unhealthy = unhealthy
        self._unready = unready
        self._metrics = metrics
        self._tokens = BearerTokens((token, True) for token in metrics_tokens)
        self._age = metrics_age
        self._made: tuple[bytes, str] | None = None
        self._made_at = 0.0
        self._rendering = asyncio.Lock()

    def add_to(self, app: web.Application, _patience: Seconds, /) -> None:
        """Add the routes to a listener. They leave no work behind a request."""
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._expose)

    def _render(self) -> tuple[bytes, str]:
        pieces, content_type = self._metrics()
        return joined(pieces), content_type

    async def _healthz(self, _: web.Request) -> web.Response:
        return _verdict("healthy", self._unhealthy())

    async def _readyz(self, _: web.Request) -> web.Response:
        return _verdict("ready", self._unready())

    async def _expose(self, request: web.Request) -> web.Response:
        if self._tokens and not self._tokens.holder(request.headers.getall("Authorization", [])):
            answer = error_answer(401, "token")
            answer.headers["WWW-Authenticate"] = "Bearer"
            return answer
        async with self._rendering:
            now = asyncio.get_running_loop().time()
            if self._made is None or now - self._made_at >= self._age:
                self._made, self._made_at = await asyncio.to_thread(self._render), now
            body, content_type = self._made
        headers = {"Content-Type": content_type, "Cache-Control": "no-store"}
        return web.Response(body=body, headers=headers)


def _pause() -> None:
    time.sleep(PIECE_PAUSE)


def joined(pieces: Iterable[bytes], pause: Callable[[], None] = _pause) -> bytes:
    """Join the pieces, and call `pause` after each `PIECE_BYTES` or more.

    The pieces of a large fleet take 40 ms of CPU time. Without pauses, they would delay deliveries: at each
    step of a delivery, the event loop and the store's thread would wait for the interpreter's lock, 5 ms each
    time (Python documentation, "sys.setswitchinterval").
    """
    made, paused_at = bytearray(), 0
    for piece in pieces:
        made += piece
        if len(made) - paused_at >= PIECE_BYTES:
            pause()
            paused_at = len(made)
    return bytes(made)


def _verdict(word: str, reasons: Sequence[str]) -> web.Response:
    return json_answer(503 if reasons else 200, {word: not reasons, "reasons": list(reasons)})
