"""The server side of the lab's runner protocol, which stand-in runners speak over HTTP.

`lab/machine_host.py` lists requests and answers. In addition: 404 if the job is not (or no longer) this
runner's; 403 to a runner whose version is too old; 410 to a renewal of a cancelled job, which the runner must
end; 401 for a wrong token; 400 for a malformed body.
"""

import hmac
import json
import math
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from lab.github.actions import Actions, JobCancelledError, NotTheirJobError
from lab.github.gateway import whole_number
from lab.github.records import Runner
from lab.github.runners import RunnerGoneError

LONGEST_POLL = 60.0

Answer = Callable[[Runner, dict[str, Any]], Awaitable[web.Response]]


class _MalformedError(Exception):
    """The body is malformed: 400."""


class ProtocolRoutes:
    """The handlers for runners with the token of their JIT configuration. `calls` counts by step.

    A runner that sends no version is never too old.
    """

    def __init__(self, actions: Actions, scale: float, oldest: str) -> None:
        self._actions = actions
        self._scale = scale
        self._oldest = _version(oldest)
        self.calls: Counter[tuple[str, int]] = Counter()

    def routes(self) -> list[web.RouteDef]:
        """Return the routes of the five steps."""
        return [
            self._step("connect", self._connect),
            self._step("message", self._message),
            self._step("started", self._started),
            self._step("renew", self._renew),
            self._step("completed", self._completed),
        ]

    def _step(self, name: str, answer: Answer) -> web.RouteDef:
        async def serve(request: web.Request) -> web.Response:
            response = await self._answer(request, answer)
            self.calls[name, response.status] += 1
            return response

        return web.post(f"/lab/runners/{{runner_id}}/{name}", serve)

    async def _answer(self, request: web.Request, answer: Answer) -> web.Response:
        number = whole_number(request.match_info["runner_id"], 0)
        runner = self._actions.runners.by_id.get(number)
        if runner is None:
            return web.Response(status=404)
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        given = token.encode("utf-8", "surrogateescape")
        if scheme != "Bearer" or not hmac.compare_digest(given, runner.token.encode()):
            return web.Response(status=401)
        try:
            return await answer(runner, _body(await request.read()))
        except (RunnerGoneError, NotTheirJobError):
            return web.Response(status=404)
        except JobCancelledError:
            return web.Response(status=410)
        except _MalformedError:
            return web.Response(status=400)

    async def _connect(self, runner: Runner, _said: dict[str, Any]) -> web.Response:
        self._actions.connect(runner)
        return web.Response(status=204)

    async def _message(self, runner: Runner, body: dict[str, Any]) -> web.Response:
        wait = body.get("wait", LONGEST_POLL)
        if not isinstance(wait, int | float) or not math.isfinite(wait):
            raise _MalformedError
        version = body.get("version")
        if isinstance(version, str) and _version(version) < self._oldest:
            message = f"Runner version v{version} is deprecated and cannot receive messages."
            return web.json_response({"message": message}, status=403)
        job = await self._actions.message(runner, min(max(float(wait), 0.0), LONGEST_POLL))
        if job is None:
            return web.Response(status=204)
        seconds = job.spec.seconds / self._scale
        described = {
            "id": job.id,
            "name": job.spec.name,
            "seconds": seconds,
            "repository": job.run.repository.full_name,
            "head": job.run.head.full_name,
            "event": job.run.event,
            "ref": job.run.ref,
            "private": job.run.repository.private,
        }
        return web.json_response({"job": described})

    async def _started(self, runner: Runner, body: dict[str, Any]) -> web.Response:
        self._actions.started(runner, _job(body))
        return web.Response(status=204)

    async def _renew(self, runner: Runner, body: dict[str, Any]) -> web.Response:
        over = self._actions.renew(runner, _job(body))
        return web.json_response({"over": True}) if over else web.Response(status=204)

    async def _completed(self, runner: Runner, body: dict[str, Any]) -> web.Response:
        conclusion = body.get("conclusion")
        if conclusion not in {"success", "failure", "cancelled"}:
            raise _MalformedError
        self._actions.completed(runner, _job(body), conclusion, body.get("stepped") is not False)
        return web.Response(status=204)


def _body(raw: bytes) -> dict[str, Any]:
    if not raw:
        return {}
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        raise _MalformedError from None
    if not isinstance(body, dict):
        raise _MalformedError
    return body


def _version(text: str) -> tuple[int, ...]:
    parts = text.split(".")
    if not all(part.isdecimal() and part.isascii() for part in parts):
        raise _MalformedError
    return tuple(int(part) for part in parts)


def _job(body: dict[str, Any]) -> int:
    number = body.get("job")
    if not isinstance(number, int) or isinstance(number, bool):
        raise _MalformedError
    return number
