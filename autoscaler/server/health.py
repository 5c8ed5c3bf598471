"""The endpoints /healthz, /readyz and /metrics. Callables supply their content."""

import asyncio
from collections.abc import Callable, Sequence

from aiohttp import web

from autoscaler.model.identifiers import Seconds
from autoscaler.server.answers import error_answer, json_answer
from autoscaler.server.bearer import BearerTokens

Reasons = Callable[[], Sequence[str]]
"""Returns why the check fails, as text; empty if it succeeds. The text is public: no secrets."""

Exposition = Callable[[], tuple[bytes, str]]
"""Returns the metrics as text, and their content type. It is called in a thread."""

METRICS_AGE: Seconds = 1.0
"""How long an answer of /metrics is reused."""


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
                # Takes 40 ms for a large fleet. In a thread, the event loop gets a turn every 5 ms.
                self._made, self._made_at = await asyncio.to_thread(self._metrics), now
            body, content_type = self._made
        headers = {"Content-Type": content_type, "Cache-Control": "no-store"}
        return web.Response(body=body, headers=headers)


def _verdict(word: str, reasons: Sequence[str]) -> web.Response:
    return json_answer(503 if reasons else 200, {word: not reasons, "reasons": list(reasons)})
