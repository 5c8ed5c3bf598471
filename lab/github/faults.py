"""Faults in REST answers: HTML pages, error statuses, silence, incomplete bodies.

A fault's `done` says whether GitHub carries out the request nevertheless.
"""

import asyncio
import json
import random
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from aiohttp import web

from lab.github.credentials import Credentials
from lab.github.settings import AnswerFault

UNANSWERED = 0
"""The status under which requests without an answer are counted."""

_HTML = "<!DOCTYPE html>\n<html><head><title>Unicorn! &middot; GitHub</title></head></html>\n"
_MESSAGES = {
    403: "You have exceeded a secondary rate limit. Please wait a few minutes before you try again.",
    429: "You have exceeded a secondary rate limit. Please wait a few minutes before you try again.",
    503: "Service unavailable",
}

Serve = Callable[[web.Request], Awaitable[web.Response]]


class AnswerFaults:
    """The active faults. `met` counts applied faults by kind. `seed` decides which requests a share hits."""

    def __init__(self, faults: Sequence[AnswerFault], seed: int, credentials: Credentials) -> None:
        self._credentials = credentials
        self.met: Counter[str] = Counter()
        self._random = random.Random(f"{seed} answers")  # noqa: S311 - faults
        self._left: list[tuple[AnswerFault, float]] = []
        self.set(faults)

    def set(self, faults: Sequence[AnswerFault]) -> None:
        """Replace all faults by these. The first that matches a request applies."""
        self._left = [(one, float("inf") if one.times is None else one.times) for one in faults]

    async def serve(
        self, name: str, request: web.Request, handle: Serve
    ) -> tuple[web.StreamResponse, int]:
        """Return the answer to a request of the route `name`, and the status to count it under."""
        fault = self._take(name, request)
        if fault is None:
            response = await handle(request)
            return response, response.status
        self.met[fault.kind] += 1
        if fault.kind in {"cut", "garbled", "changed"}:
            response = await handle(request)
            fault.then()
            if fault.kind == "changed":
                return _changed(response, fault), response.status
            return await _halved(request, response, fault)
        if fault.done:
            await handle(request)
        fault.then()
        if fault.until is not None:
            await fault.until.wait()
        if fault.kind == "stall":
            # Ends when the caller disconnects, which cancels this, or the server closes.
            await asyncio.Event().wait()
        if fault.kind == "dropped":
            return _hung_up(request), UNANSWERED
        return _instead(fault), fault.status

    def _take(self, name: str, request: web.Request) -> AnswerFault | None:
        for index, (fault, left) in enumerate(self._left):
            if not self._fits(fault, name, request) or self._random.random() >= fault.share:
                continue
            if left <= 1:
                del self._left[index]
            else:
                self._left[index] = (fault, left - 1)
            return fault
        return None

    def _fits(self, fault: AnswerFault, name: str, request: web.Request) -> bool:
        if fault.route not in {None, name}:
            return False
        if fault.request is not None and not re.search(
            fault.request, f"{request.method} {request.rel_url}"
        ):
            return False
        return fault.by is None or fault.by == self._credentials.holder(request)


def _instead(fault: AnswerFault) -> web.Response:
    """Return an answer in place of GitHub's."""
    if fault.kind == "answer":
        sent = {name: value for name, value in fault.headers.items() if value is not None}
        if isinstance(fault.body, bytes):
            return web.Response(body=fault.body, status=fault.status, headers=sent)
        return web.json_response(fault.body, status=fault.status, headers=sent)
    headers = {} if fault.retry_after is None else {"retry-after": str(fault.retry_after)}
    if fault.kind == "html":
        return web.Response(
            text=_HTML, content_type="text/html", status=fault.status, headers=headers
        )
    if fault.kind == "html_as_json":
        return web.Response(
            text=_HTML, content_type="application/json", status=fault.status, headers=headers
        )
    message = _MESSAGES.get(fault.status, "Server Error")
    return web.json_response({"message": message}, status=fault.status, headers=headers)


def _changed(response: web.Response, fault: AnswerFault) -> web.Response:
    """Change the JSON of a success; another answer gets only the headers."""
    if response.status < 300 and isinstance(response.body, bytes) and response.body:
        response.body = json.dumps(fault.change(json.loads(response.body))).encode()
    for name, value in fault.headers.items():
        response.headers.popall(name, None)
        if value is not None:
            response.headers[name] = value
    return response


async def _halved(
    request: web.Request, response: web.Response, fault: AnswerFault
) -> tuple[web.StreamResponse, int]:
    """Send half of the body, with a matching Content-Length or a closed connection."""
    body = response.body if isinstance(response.body, bytes) else b""
    half = body[: len(body) // 2]
    headers = {name: value for name, value in response.headers.items() if name != "Content-Length"}
    if fault.kind == "garbled":
        return web.Response(body=half, status=response.status, headers=headers), response.status
    partial = web.StreamResponse(status=response.status, headers=headers)
    partial.content_length = len(body) + 1
    await partial.prepare(request)
    await partial.write(half)
    _hang_up(request)
    return partial, UNANSWERED


def _hung_up(request: web.Request) -> web.Response:
    _hang_up(request)
    return web.Response()


def _hang_up(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.close()
