"""The /admin endpoints, for operators with a bearer token: see docs/operations.md.

Checks tokens, their roles and the format of requests. The controller decides whether to carry out a
request, and `FleetQueries` answers questions.
Tokens and bodies are never logged. Only a request with a valid token gets a reason. The log has
its path and the name of its token.
"""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from functools import partial

from aiohttp import web

from autoscaler.controller.operators.actions import OperatorActions
from autoscaler.controller.operators.fleet_queries import FleetQueries
from autoscaler.controller.operators.holds import OperatorHoldActions
from autoscaler.controller.ports.operator_requests import (
    ConfigurationRequests,
    ControllerStopsError,
    OperatorRequestRefusedError,
    PlanInProgressError,
    RefusalKind,
    RefusedConfigurationError,
)
from autoscaler.controller.ports.store import StoreError
from autoscaler.model.identifiers import Seconds
from autoscaler.model.operators import Operator, OperatorName
from autoscaler.server import bodies
from autoscaler.server.answers import error_answer, json_answer
from autoscaler.server.bodies import Bodies, BodyRefusedError
from autoscaler.server.operators.filters import MalformedRequestError, UnknownNameError
from autoscaler.server.operators.queries import Queries
from autoscaler.server.refusal_log import RefusalLog
from autoscaler.server.tokens import BearerTokens, WrongTokens, bearer_token

MAX_MACHINES = 10_000
"""Maximum number of machines in one answer: about 5 MB."""

MAX_FILE_BYTES = 2**20
"""Maximum size of a fleet.yaml."""

PLAN_TIMEOUT: Seconds = 60.0
"""How long a request for a plan is kept waiting. Plans take a few seconds at most."""

MAX_PROBLEMS = 100
"""Maximum number of problems of a fleet.yaml in one answer."""

_MAX_BODY_BYTES = 4096
_MAX_LOGGED_PATH = 200
_MACHINE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_TARGET = re.compile(r"(?:[a-z]{1,16}/)?[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_INSTALLATION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_STATUS = {RefusalKind.UNKNOWN: 404, RefusalKind.CONTRADICTED: 409, RefusalKind.UNREACHABLE: 503}

_Query = Callable[[web.Request], Awaitable[web.Response]]
_Act = Callable[[web.Request, OperatorName], Awaitable[web.Response]]


class AdminEndpoint:
    """The operators' routes. `tokens` returns the tokens that are valid now."""

    def __init__(
        self,
        requests: OperatorActions,
        holds: OperatorHoldActions,
        queries: FleetQueries,
        configuration: ConfigurationRequests,
        tokens: Callable[[], BearerTokens[Operator]],
        wrong_tokens: WrongTokens,
        plan_timeout: Seconds = PLAN_TIMEOUT,
    ) -> None:
        self._requests = requests
        self._holds = {
            "pause": holds.pause,
            "drain": holds.drain,
            "quarantine": holds.quarantine,
            "resume": holds.resume,
            "retry": holds.retry,
        }
        self._queries = Queries(queries)
        self._tokens = tokens
        self._wrong_tokens = wrong_tokens
        self._configuration = configuration
        self._plan_timeout = plan_timeout
        self._bodies = Bodies(_MAX_BODY_BYTES)
        self._files = Bodies(MAX_FILE_BYTES)
        self._refusals = RefusalLog()

    def add_to(self, app: web.Application, _patience: Seconds, /) -> None:
        """Add the routes to a listener. They leave no work behind a request."""
        questions = {"/admin/unverified": self._unverified, **self._queries.routes()}
        for path, question in questions.items():
            app.router.add_get(path, partial(self._ask, question))
        app.router.add_post("/admin/plan", partial(self._ask, self._plan))
        acts: dict[str, _Act] = {
            "/admin/reload": self._reload,
            "/admin/machines/{machine}/terminate": self._terminate,
            "/admin/adopt": self._adopt,
            **{f"/admin/{name}": partial(self._hold, name) for name in self._holds},
        }
        for path, act in acts.items():
            app.router.add_post(path, partial(self._act, act))

    async def _ask(self, question: _Query, request: web.Request) -> web.Response:
        """Answer a question of any operator."""
        operator = self._operator(request)
        if isinstance(operator, web.Response):
            return operator
        return await self._answer(question(request), request, operator)

    async def _act(self, act: _Act, request: web.Request) -> web.Response:
        """Carry out a request of an operator whose role allows it."""
        operator = self._operator(request)
        if isinstance(operator, web.Response):
            return operator
        if not operator.may_operate:
            reason = f"token {operator.name} has the role {operator.role}, and this needs operate"
            self._note(request, operator, "role", reason)
            return json_answer(403, {"error": "role", "reason": reason})
        return await self._answer(act(request, operator.name), request, operator)

    def _operator(self, request: web.Request) -> Operator | web.Response:
        """Return who has the request's token, or the refusal of the request."""
        token = bearer_token(request.headers.getall("Authorization", []))
        operator = self._tokens().holder_of(token)
        if operator is not None:
            return operator
        wait = self._wrong_tokens.note(request.remote, token)
        if wait > 0.0:
            return self._refuse(request, 429, "too_many_tokens", wait)
        answer = self._refuse(request, 401, "token")
        answer.headers["WWW-Authenticate"] = "Bearer"
        return answer

    def _refuse(
        self, request: web.Request, status: int, word: str, retry_after: Seconds | None = None
    ) -> web.Response:
        resource = request.match_info.route.resource
        # A stranger chose the path, so that only the pattern that it matches is logged.
        route = f"{request.method} {resource.canonical if resource is not None else ''}"
        self._refusals.note("admin_refused", word, reason=word, route=route, peer=request.remote)
        return error_answer(status, word, retry_after)

    def _note(self, request: web.Request, operator: Operator, kind: str, reason: str) -> None:
        """Log the refusal of a request with a valid token. Its query and body are not logged."""
        self._refusals.note(
            "admin_refused",
            kind,
            reason=reason,
            by=operator.name,
            route=f"{request.method} {request.rel_url.raw_path}"[:_MAX_LOGGED_PATH],
            peer=request.remote,
        )

    async def _answer(
        self, answered: Awaitable[web.Response], request: web.Request, operator: Operator
    ) -> web.Response:
        """Return the answer, or the one that explains why there is none."""
        try:
            return await answered
        except MalformedRequestError as error:
            return json_answer(400, {"error": "malformed", "reason": str(error)})
        except UnknownNameError as error:
            return json_answer(404, {"error": "unknown", "reason": str(error)})
        except BodyRefusedError as error:
            return error_answer(bodies.REFUSED[error.reason], error.reason)
        except OperatorRequestRefusedError as error:
            self._note(request, operator, error.kind, error.reason)
            return json_answer(
                _STATUS[error.kind], {"error": error.kind.value, "reason": error.reason}
            )
        except RefusedConfigurationError as error:
            problems = error.problems[:MAX_PROBLEMS]
            return json_answer(422, {"error": "configuration", "problems": problems})
        except PlanInProgressError:
            reason = "the controller makes another plan now: try again in a few seconds"
            return json_answer(503, {"error": "busy", "reason": reason})
        except TimeoutError:
            return json_answer(503, {"error": "busy", "reason": "the plan takes too long"})
        except ControllerStopsError:
            reason = "the controller stops, or starts again: reload again once it runs"
            return json_answer(503, {"error": "busy", "reason": reason})
        except StoreError:
            return error_answer(503, "store")

    async def _unverified(self, _: web.Request) -> web.Response:
        found = self._requests.unverified()
        shown = [asdict(one) for one in found[:MAX_MACHINES]]
        not_listed = list(self._requests.providers_not_listed())
        return json_answer(
            200, {"unverified": shown, "total": len(found), "providers_not_listed": not_listed}
        )

    async def _terminate(self, request: web.Request, by: OperatorName) -> web.Response:
        machine = request.match_info["machine"]
        if _MACHINE.fullmatch(machine) is None:
            raise MalformedRequestError(
                "MACHINE must be a machine's ID: `autoscaler machines` and `autoscaler unverified` list them"
            )
        body = await self._body(request, {"force"})
        force = _flag(body, "force")
        terminated = await self._requests.terminate(machine, by=by, force=force)
        return json_answer(200, {"machine": terminated})

    async def _adopt(self, request: web.Request, by: OperatorName) -> web.Response:
        body = await self._body(request, {"installation", "force"})
        old, force = body.get("installation"), _flag(body, "force")
        if not isinstance(old, str) or _INSTALLATION.fullmatch(old) is None:
            raise MalformedRequestError(
                "ID must be the ID of an installation: `autoscaler unverified` lists them"
            )
        taken = await self._requests.adopt(old, by=by, force=force)
        return json_answer(200, {"installation": taken})

    async def _hold(self, name: str, request: web.Request, by: OperatorName) -> web.Response:
        target = (await self._body(request, {"target"})).get("target")
        if not isinstance(target, str) or _TARGET.fullmatch(target) is None:
            raise MalformedRequestError(
                "`target` must be all or the name of a SKU, provider or machine, perhaps after its kind and a /"
            )
        return json_answer(200, asdict(await self._holds[name](target, by=by)))

    async def _reload(self, request: web.Request, by: OperatorName) -> web.Response:
        await self._body(request, set())
        return json_answer(200, asdict(await self._configuration.reload(by=by)))

    async def _plan(self, request: web.Request) -> web.Response:
        """Answer what the fleet.yaml in the body would do. It changes nothing, so that any role may ask."""
        async with self._files.read(request) as text:
            content = bytes(text)
        async with asyncio.timeout(self._plan_timeout):
            found = await self._configuration.plan_against(content)
        return await asyncio.to_thread(lambda: json_answer(200, asdict(found)))

    async def _body(self, request: web.Request, keys: set[str]) -> dict[str, object]:
        """Return the JSON object of the body, with no keys but these. An empty body is an empty object."""
        async with self._bodies.read(request) as text:
            try:
                body = json.loads(text.decode() or "{}")
            except (ValueError, RecursionError) as error:
                raise MalformedRequestError("the body is not JSON") from error
        if not isinstance(body, dict) or not set(body) <= keys:
            allowed = ", ".join(sorted(keys)) or "none"
            raise MalformedRequestError(f"the body must be a JSON object; keys: {allowed}")
        return body


def _flag(body: dict[str, object], key: str) -> bool:
    value = body.get(key, False)
    if not isinstance(value, bool):
        raise MalformedRequestError(f"`{key}` must be true or false")
    return value
