"""GET /healthz, /readyz and /metrics: what callables say, as HTTP.

Whether the process is well is decided where it is known, never here.
"""

import asyncio
from collections.abc import Callable, Sequence

from aiohttp import web

from autoscaler.model.identifiers import Seconds
from autoscaler.server.answers import error_answer, json_answer
from autoscaler.server.bearer import BearerTokens

Reasons = Callable[[], Sequence[str]]
"""Why not, in words for people; empty when all is well. Holds no secret, for anyone may read it."""

Exposition = Callable[[], tuple[bytes, str]]
"""The metrics as text, and their content type."""


METRICS_AGE: Seconds = 1.0
"""How old an answer to /metrics may be."""


class HealthEndpoint:
    """`unhealthy`: restart this process (its loop stands still). `unready`: send it no work yet."""

    def __init__(
        self,
        unhealthy: Reasons,
        unready: Reasons,
        metrics: Exposition,
        metrics_tokens: Sequence[bytes] = (),
        metrics_age: Seconds = METRICS_AGE,
    ) -> None:
        """With `metrics_tokens`, /metrics wants one of them; the other two routes never do."""
        self._unhealthy = unhealthy
        self._unready = unready
        self._metrics = metrics
        self._tokens = BearerTokens(metrics_tokens)
        self._age = metrics_age
        self._made: tuple[bytes, str] | None = None
        self._made_at = 0.0

    def add_to(self, app: web.Application, _patience: Seconds, /) -> None:
        """Put the routes on a listener. Nothing of them outlasts a request."""
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._expose)

    async def _healthz(self, _: web.Request) -> web.Response:
        return _verdict("healthy", self._unhealthy())

    async def _readyz(self, _: web.Request) -> web.Response:
        return _verdict("ready", self._unready())

    async def _expose(self, request: web.Request) -> web.Response:
        if self._tokens and not self._tokens.accept(request.headers.getall("Authorization", [])):
            answer = error_answer(401, "token")
            answer.headers["WWW-Authenticate"] = "Bearer"
            return answer
        # Writing them out takes milliseconds, in which nothing else is served.
        now = asyncio.get_running_loop().time()
        if self._made is None or now - self._made_at >= self._age:
            self._made, self._made_at = self._metrics(), now
        body, content_type = self._made
        headers = {"Content-Type": content_type, "Cache-Control": "no-store"}
        return web.Response(body=body, headers=headers)


def _verdict(word: str, reasons: Sequence[str]) -> web.Response:
    return json_answer(503 if reasons else 200, {word: not reasons, "reasons": list(reasons)})
