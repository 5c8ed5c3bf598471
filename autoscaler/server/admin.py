"""The /admin endpoints, for operators with a bearer token: see docs/operations.md.

Checks tokens and the format of requests. The OperatorRequests port decides whether to carry out a request, and
the FleetQueries port answers questions.
Tokens and requests are never logged. Only a request with a valid token gets a reason.
"""

import json
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from functools import partial

from aiohttp import web

from autoscaler.controller.ports.fleet_queries import FleetQueries
from autoscaler.controller.ports.operator_requests import (
    OperatorRequestRefusedError,
    OperatorRequests,
    RefusalKind,
)
from autoscaler.controller.ports.store import StoreError
from autoscaler.model.identifiers import Seconds
from autoscaler.server.answers import error_answer, json_answer
from autoscaler.server.bearer import BearerTokens
from autoscaler.server.bodies import Bodies, BodyRefusedError
from autoscaler.server.queries import Queries, UnusableQueryError
from autoscaler.server.refusal_log import RefusalLog

MAX_MACHINES = 10_000
"""Maximum number of machines in one answer: about 5 MB."""

_MAX_BODY_BYTES = 4096
_MACHINE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_INSTALLATION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_STATUS = {RefusalKind.UNKNOWN: 404, RefusalKind.CONTRADICTED: 409, RefusalKind.UNREACHABLE: 503}
_BODY_STATUS = {"too_large": 413, "too_slow": 408, "encoded": 415, "broken": 400, "busy": 503}

_Act = Callable[[web.Request], Awaitable[web.Response]]


class _MalformedError(Exception):
    """The request has a wrong format."""


class AdminEndpoint:
    """The operators' routes. `tokens` are the valid tokens, at least one."""

    def __init__(
        self, requests: OperatorRequests, queries: FleetQueries, tokens: Sequence[bytes]
    ) -> None:
        self._requests = requests
        self._queries = Queries(queries)
        self._tokens = BearerTokens(tokens)
        self._bodies = Bodies(_MAX_BODY_BYTES)
        self._refusals = RefusalLog()

    def add_to(self, app: web.Application, _patience: Seconds, /) -> None:
        """Add the routes to a listener. They leave no work behind a request."""
        app.router.add_get("/admin/unverified", partial(self._answer, self._unverified))
        for path, handler in self._queries.routes().items():
            app.router.add_get(path, partial(self._answer, handler))
        app.router.add_post(
            "/admin/machines/{machine}/terminate", partial(self._answer, self._terminate)
        )
        app.router.add_post("/admin/adopt", partial(self._answer, self._adopt))
        app.router.add_post("/admin/circuits/{sku}/close", partial(self._answer, self._circuit))

    async def _answer(self, act: _Act, request: web.Request) -> web.Response:
        if not self._tokens.accept(request.headers.getall("Authorization", [])):
            self._refusals.note("admin_refused", "token", reason="token", peer=request.remote)
            answer = error_answer(401, "token")
            answer.headers["WWW-Authenticate"] = "Bearer"
            return answer
        try:
            return await act(request)
        except _MalformedError:
            return error_answer(400, "malformed")
        except UnusableQueryError as error:
            return json_answer(400, {"error": "malformed", "reason": str(error)})
        except BodyRefusedError as error:
            return error_answer(_BODY_STATUS[error.reason], error.reason)
        except OperatorRequestRefusedError as error:
            self._refusals.note("admin_refused", error.kind, reason=error.reason)
            return json_answer(
                _STATUS[error.kind], {"error": error.kind.value, "reason": error.reason}
            )
        except StoreError:
            return error_answer(503, "store")

    async def _unverified(self, _: web.Request) -> web.Response:
        found = self._requests.unverified()
        shown = [asdict(one) for one in found[:MAX_MACHINES]]
        unlisted = list(self._requests.unlisted())
        return json_answer(200, {"unverified": shown, "total": len(found), "unlisted": unlisted})

    async def _terminate(self, request: web.Request) -> web.Response:
        machine = request.match_info["machine"]
        if _MACHINE.fullmatch(machine) is None:
            raise _MalformedError
        body = await self._body(request, {"force"})
        force = _flag(body, "force")
        return json_answer(200, {"machine": await self._requests.terminate(machine, force=force)})

    async def _adopt(self, request: web.Request) -> web.Response:
        body = await self._body(request, {"installation", "force"})
        old, force = body.get("installation"), _flag(body, "force")
        if not isinstance(old, str) or _INSTALLATION.fullmatch(old) is None:
            raise _MalformedError
        taken = await self._requests.adopt(old, force=force)
        return json_answer(200, {"installation": taken})

    async def _circuit(self, request: web.Request) -> web.Response:
        sku = request.match_info["sku"]
        if _MACHINE.fullmatch(sku) is None:
            raise _MalformedError
        await self._body(request, set())
        return json_answer(200, {"sku": await self._requests.close_circuit(sku)})

    async def _body(self, request: web.Request, keys: set[str]) -> dict[str, object]:
        """Return the JSON object of the body, with no keys but these. An empty body is an empty object."""
        async with self._bodies.read(request) as text:
            try:
                body = json.loads(text.decode() or "{}")
            except (ValueError, RecursionError) as error:
                raise _MalformedError from error
        if not isinstance(body, dict) or not set(body) <= keys:
            raise _MalformedError
        return body


def _flag(body: dict[str, object], key: str) -> bool:
    value = body.get(key, False)
    if not isinstance(value, bool):
        raise _MalformedError
    return value
