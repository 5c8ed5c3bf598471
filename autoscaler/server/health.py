"""GET /healthz, /readyz and /metrics: what callables say, as HTTP.

Whether the process is well is decided where it is known, never here.
"""

from collections.abc import Callable, Sequence

from aiohttp import web

from autoscaler.model.identifiers import Seconds
from autoscaler.server.answers import json_answer

Reasons = Callable[[], Sequence[str]]
"""Why not, in words for people; empty when all is well. Holds no secret, for anyone may read it."""

Exposition = Callable[[], tuple[bytes, str]]
"""The metrics as text, and their content type."""


class HealthEndpoint:
    """`unhealthy`: restart this process (its loop stands still). `unready`: send it no work yet."""

    def __init__(self, unhealthy: Reasons, unready: Reasons, metrics: Exposition) -> None:
        self._unhealthy = unhealthy
        self._unready = unready
        self._metrics = metrics

    def add_to(self, app: web.Application, _patience: Seconds, /) -> None:
        """Put the routes on a listener. Nothing of them outlasts a request."""
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._expose)

    async def _healthz(self, _: web.Request) -> web.Response:
        return _verdict("healthy", self._unhealthy())

    async def _readyz(self, _: web.Request) -> web.Response:
        return _verdict("ready", self._unready())

    async def _expose(self, _: web.Request) -> web.Response:
        body, content_type = self._metrics()
        headers = {"Content-Type": content_type, "Cache-Control": "no-store"}
        return web.Response(body=body, headers=headers)


def _verdict(word: str, reasons: Sequence[str]) -> web.Response:
    return json_answer(503 if reasons else 200, {word: not reasons, "reasons": list(reasons)})
