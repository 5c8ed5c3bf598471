"""Builds HTTP answers: small JSON bodies, errors as `{"error": WORD}`.

An answer contains no text of a request or of an exception.
"""

import json
import math
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus

from aiohttp import web

from autoscaler.model.identifiers import Seconds

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


def json_answer(status: int, body: Mapping[str, object]) -> web.Response:
    """Return an answer with a JSON object that proxies must not cache."""
    return web.Response(
        status=status,
        body=json.dumps(body, separators=(",", ":")).encode(),
        content_type="application/json",
        headers={"Cache-Control": "no-store"},
    )


def error_answer(status: int, word: str, retry_after: Seconds | None = None) -> web.Response:
    """Return `{"error": word}`. Retry-After is in whole seconds, rounded up, and at least 1."""
    answer = json_answer(status, {"error": word})
    if retry_after is not None:
        answer.headers["Retry-After"] = str(max(1, math.ceil(retry_after)))
    return answer


def json_errors(handler: Handler) -> Handler:
    """Return a handler that writes the router's errors (404, 405, 417) as JSON.

    An aiohttp middleware would cost each delivery two more coroutines.
    """

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        try:
            return await handler(request)
        except web.HTTPError as error:
            word = HTTPStatus(error.status).phrase.lower().replace(" ", "_")
            answer = error_answer(error.status, word)
            if "Allow" in error.headers:
                answer.headers["Allow"] = error.headers["Allow"]
            return answer

    return handle
