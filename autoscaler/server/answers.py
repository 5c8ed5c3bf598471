"""Answers as the endpoints give them: small JSON bodies, errors as `{"error": WORD}`.

Never puts anything of a request or of an exception into an answer.
"""

import json
import math
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus

from aiohttp import web

from autoscaler.model.identifiers import Seconds

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


def json_answer(status: int, body: Mapping[str, object]) -> web.Response:
    """A JSON object, not to be kept by anything on the way."""
    return web.Response(
        status=status,
        body=json.dumps(body, separators=(",", ":")).encode(),
        content_type="application/json",
        headers={"Cache-Control": "no-store"},
    )


def error_answer(status: int, word: str, retry_after: Seconds | None = None) -> web.Response:
    """`{"error": word}`; `retry_after` goes out in whole seconds, rounded up, at least 1."""
    answer = json_answer(status, {"error": word})
    if retry_after is not None:
        answer.headers["Retry-After"] = str(max(1, math.ceil(retry_after)))
    return answer


def json_errors(handler: Handler) -> Handler:
    """Return a handler that gives the router's own refusals (404, 405, 417) the same shape as ours.

    A middleware of aiohttp's would cost each delivery two more coroutines.
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
