"""The endpoints /healthz, /readyz and /metrics. Callables supply their content."""

import asyncio
from collections.abc import Callable, Iterable, Sequence

from aiohttp import web

from autoscaler.model.identifiers import Seconds
from autoscaler.server.answers import error_answer, json_answer
from autoscaler.server.bearer import BearerTokens

Reasons = Callable[[], Sequence[str]]
"""Returns why the check fails, as text; empty if it succeeds. The text is public: no secrets."""

Exposition = Callable[[], tuple[Iterable[bytes], str]]
"""Returns the metrics as pieces of text, and their content type. Each piece is made when it is asked for."""

METRICS_AGE: Seconds = 1.0
"""How long an answer of /metrics is reused."""

PIECE_BYTES = 16_384
"""After this much text, which takes 2 ms of CPU time, the metrics wait for `PIECE_PAUSE`."""

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
                pieces, content_type = self._metrics()
                self._made, self._made_at = (await in_turns(pieces), content_type), now
            body, content_type = self._made
        headers = {"Content-Type": content_type, "Cache-Control": "no-store"}
        return web.Response(body=body, headers=headers)


async def in_turns(pieces: Iterable[bytes]) -> bytes:
    """Join the pieces. Between them, the event loop answers others.

    The metrics of a large fleet take 40 ms of CPU time. Made in a thread, they would delay deliveries more:
    at each step of a delivery, the event loop and the store's thread would wait for the interpreter's lock,
    5 ms each time (Python documentation, "sys.setswitchinterval").
    """
    made, paused_at = bytearray(), 0
    for piece in pieces:
        made += piece
        if len(made) - paused_at >= PIECE_BYTES:
            await asyncio.sleep(PIECE_PAUSE)
            paused_at = len(made)
    return bytes(made)


def _verdict(word: str, reasons: Sequence[str]) -> web.Response:
    return json_answer(503 if reasons else 200, {word: not reasons, "reasons": list(reasons)})
