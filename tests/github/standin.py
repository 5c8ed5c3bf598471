"""A small GitHub on loopback: Apps, runners, groups, jobs and hook deliveries, and its bad days.

It checks who asks (JWT signatures, live tokens) and keeps a list of what was asked.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import jwt
from aiohttp import web
from aiohttp.test_utils import TestServer

from autoscaler.model.identifiers import Instant
from tests.github.doubles import ManualClock
from tests.github.faults import Fault
from tests.github.standin_lists import StandInLists
from tests.patience import PATIENCE


def timestamp(at: Instant) -> str:
    """An instant as GitHub writes it."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass
class StandIn:
    """State of the stand-in. `apps` maps an App's id to its public key (PEM).

    `registrations` is what is left of an installation's bucket; without it GitHub has no limits,
    as an Enterprise Server. `registered_by` are the installations that registered runners, in order.
    """

    clock: ManualClock
    apps: dict[str, bytes]
    installed: dict[tuple[str, str], int] = field(default_factory=dict)
    groups: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    shown_groups: dict[int, dict[str, Any]] = field(default_factory=dict)
    chosen: dict[int, list[str]] = field(default_factory=dict)
    runners: dict[str, dict[int, dict[str, Any]]] = field(default_factory=dict)
    jobs: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)
    deliveries: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    tokens: dict[str, Instant] = field(default_factory=dict)
    registered: list[dict[str, Any]] = field(default_factory=list)
    registered_by: list[int] = field(default_factory=list)
    registrations: dict[int, int] = field(default_factory=dict)
    lists: StandInLists = field(default_factory=StandInLists)
    page_size: int = 100
    under_way: int = 0
    most_under_way: int = 0
    hold: asyncio.Event | None = None
    over: asyncio.Event = field(default_factory=asyncio.Event)
    arrival: asyncio.Condition = field(default_factory=asyncio.Condition)

    def count(self, pattern: str) -> int:
        """Return how many requests matched `METHOD path-pattern`."""
        return sum(1 for call in self.calls if re.search(pattern, call))

    async def until_under_way(self, number: int) -> None:
        """Wait until this many requests have arrived and are not answered yet."""
        async with asyncio.timeout(PATIENCE), self.arrival:
            await self.arrival.wait_for(lambda: self.under_way >= number)

    async def until_called(self, pattern: str, times: int) -> None:
        """Wait until so many requests that match have arrived."""
        async with asyncio.timeout(PATIENCE), self.arrival:
            await self.arrival.wait_for(lambda: self.count(pattern) >= times)

    @web.middleware
    async def fail(self, request: web.Request, handler: Any) -> web.StreamResponse:
        """Count the request, delay it, and apply its fault."""
        call = f"{request.method} {request.rel_url}"
        self.calls.append(call)
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        async with self.arrival:
            self.arrival.notify_all()
        try:
            if self.hold is not None:
                await self.hold.wait()
            holder = request.headers.get("Authorization", "").rpartition("_")[2]
            fault = next((f for f in self.faults if f.fits(call, holder)), None)
            if fault is None:
                answer: web.StreamResponse = await handler(request)
                return answer
            return await self._spoil(fault, request, handler)
        finally:
            self.under_way -= 1

    async def _spoil(self, fault: Fault, request: web.Request, handler: Any) -> web.StreamResponse:
        fault.times -= 1
        if fault.done:
            await handler(request)
        if fault.hang:
            await self.over.wait()
        if fault.cut and request.transport is not None:
            request.transport.close()
        if isinstance(fault.body, dict):
            return web.json_response(fault.body, status=fault.status, headers=fault.headers)
        return web.Response(status=fault.status, body=fault.body, headers=fault.headers)

    def app_of(self, request: web.Request) -> str:
        """Return the App that signed this JWT."""
        token = _bearer(request)
        try:
            app = jwt.decode(token, options={"verify_signature": False})["iss"]
            claims = jwt.decode(
                token,
                self.apps[app],
                algorithms=["RS256"],
                options={"verify_exp": False, "verify_iat": False},
            )
        except (jwt.PyJWTError, KeyError):
            raise _refuse(401, "A JSON web token could not be decoded") from None
        now = self.clock.now()
        if not (claims["iat"] <= now < claims["exp"] <= now + 600):
            raise _refuse(401, "'Expiration time' claim must be within 10 minutes")
        return str(app)

    def need_token(self, request: web.Request) -> int:
        """Return the installation of the request's token. Without a valid token the request is refused."""
        token = _bearer(request)
        if self.tokens.get(token, 0.0) <= self.clock.now():
            raise _refuse(401, "Bad credentials")
        return int(token.rpartition("_")[2])

    async def rate_limit(self, request: web.Request) -> web.Response:
        left = self.registrations.get(self.need_token(request))
        if left is None:
            raise _refuse(404, "Rate limiting is not enabled.")
        reset = int(self.clock.now()) + 600
        bucket = {"limit": 10_000, "used": 10_000 - left, "remaining": left, "reset": reset}
        core = {"limit": 5000, "used": 1, "remaining": 4999, "reset": reset}
        resources = {"core": core, "actions_runner_registration": bucket}
        return web.json_response({"resources": resources, "rate": core})

    async def installation(self, request: web.Request) -> web.Response:
        app = self.app_of(request)
        owner = request.match_info["owner"].lower()
        found = self.installed.get((app, owner))
        if found is None:
            raise _refuse(404, "Not Found")
        return web.json_response({"id": found, "account": {"login": owner}})

    async def access_token(self, request: web.Request) -> web.Response:
        self.app_of(request)
        if int(request.match_info["id"]) not in self.installed.values():
            raise _refuse(404, "Not Found")
        token = f"ghs_{len(self.tokens)}_{request.match_info['id']}"
        self.tokens[token] = self.clock.now() + 3600
        body = {"token": token, "expires_at": timestamp(self.tokens[token])}
        return web.json_response(body, status=201)

    async def list_groups(self, request: web.Request) -> web.Response:
        self.need_token(request)
        groups = self.groups.get(request.match_info["owner"].lower(), [])
        shown = [{"id": n, "name": name, **self.shown_groups.get(n, {})} for n, name in groups]
        return self._page(request, shown, "runner_groups")

    async def list_chosen(self, request: web.Request) -> web.Response:
        self.need_token(request)
        names = self.chosen.get(int(request.match_info["id"]), [])
        return self._page(request, [{"full_name": name} for name in names], "repositories")

    async def register(self, request: web.Request) -> web.Response:
        by = self.need_token(request)
        body = await request.json()
        runners = self.runners.setdefault(_place(request), {})
        if any(runner["name"] == body["name"] for runner in runners.values()):
            raise _refuse(409, f"Already exists - A runner with the name {body['name']}")
        if not 1 <= len(body["labels"]) <= 100:
            raise _refuse(422, "Validation Failed")
        self.registered.append({"place": _place(request), **body})
        number = len(self.registered)
        runner = {"id": number, "name": body["name"], "status": "offline", "busy": False}
        runners[number] = runner
        answer = {"runner": runner, "encoded_jit_config": f"JIT-SECRET-{number}"}
        self.registered_by.append(by)
        return web.json_response(answer, status=201, headers=self._spend(by))

    def _spend(self, installation: int) -> dict[str, str]:
        if installation not in self.registrations:
            return {}
        self.registrations[installation] -= 1
        return {
            "X-RateLimit-Limit": "10000",
            "X-RateLimit-Remaining": str(self.registrations[installation]),
            "X-RateLimit-Reset": str(int(self.clock.now()) + 600),
            "X-RateLimit-Resource": "actions_runner_registration",
        }

    async def list_runners(self, request: web.Request) -> web.Response:
        self.need_token(request)
        wanted = request.query.get("name", "")
        runners = self.runners.get(_place(request), {}).values()
        return self._page(request, [r for r in runners if wanted in r["name"]], "runners")

    async def read_runner(self, request: web.Request) -> web.Response:
        self.need_token(request)
        found = self.runners.get(_place(request), {}).get(int(request.match_info["id"]))
        if found is None:
            raise _refuse(404, "Not Found")
        return web.json_response(found)

    async def delete_runner(self, request: web.Request) -> web.Response:
        self.need_token(request)
        runners = self.runners.get(_place(request), {})
        number = int(request.match_info["id"])
        if number not in runners:
            raise _refuse(404, "Not Found")
        if runners[number]["busy"]:
            raise _refuse(422, "Runner is still running a job")
        del runners[number]
        return web.Response(status=204)

    async def read_job(self, request: web.Request) -> web.Response:
        self.need_token(request)
        job = self.jobs.get((_place(request), int(request.match_info["id"])))
        if job is None:
            raise _refuse(404, "Not Found")
        return web.json_response(job)

    async def list_deliveries(self, request: web.Request) -> web.Response:
        """List deliveries in pages with a cursor, newest first."""
        entries = self.deliveries.get(self.app_of(request), [])
        return self._page(request, entries[::-1], None, cursor="cursor")

    async def attempt(self, request: web.Request) -> web.Response:
        app = self.app_of(request)
        number = int(request.match_info["id"])
        if not any(entry["id"] == number for entry in self.deliveries.get(app, [])):
            raise _refuse(404, "Not Found")
        return web.json_response({}, status=202)

    def _page(
        self, request: web.Request, items: list[Any], key: str | None, cursor: str = "page"
    ) -> web.Response:
        start = int(request.query.get(cursor, "0"))
        size = min(self.page_size, int(request.query["per_page"]))
        shown = items[start : start + size]
        headers = {}
        if start + size < len(items):
            link = request.url.update_query({cursor: str(start + size)})
            headers["Link"] = f'<{link}>; rel="next", <{request.url}>; rel="first"'
        body: Any = shown if key is None else {"total_count": len(items), key: shown}
        return web.json_response(body, headers=headers)

    def application(self) -> web.Application:
        """Return the application with all routes, under a path prefix as GitHub Enterprise Server has it."""
        app = web.Application(middlewares=[self.fail, self.lists.tag])
        root, org, repo = "/api/v3", "/api/v3/orgs/{owner}", "/api/v3/repos/{owner}/{repo}"
        app.router.add_post(f"{root}/app/installations/{{id}}/access_tokens", self.access_token)
        app.router.add_get(f"{root}/rate_limit", self.rate_limit)
        app.router.add_get(f"{root}/app/hook/deliveries", self.list_deliveries)
        app.router.add_post(f"{root}/app/hook/deliveries/{{id}}/attempts", self.attempt)
        app.router.add_get(f"{org}/actions/runner-groups", self.list_groups)
        chosen = f"{org}/actions/runner-groups/{{id}}/repositories"
        app.router.add_get(chosen, self.list_chosen)
        app.router.add_get(f"{repo}/actions/jobs/{{id}}", self.read_job)
        self.lists.add_routes(app, root, self.need_token, self._page)
        for place in (org, repo):
            app.router.add_get(f"{place}/installation", self.installation)
            app.router.add_post(f"{place}/actions/runners/generate-jitconfig", self.register)
            app.router.add_get(f"{place}/actions/runners", self.list_runners)
            app.router.add_get(f"{place}/actions/runners/{{id}}", self.read_runner)
            app.router.add_delete(f"{place}/actions/runners/{{id}}", self.delete_runner)
        return app

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """Serve on a free port. Yields the API's URL."""
        server = TestServer(self.application())
        await server.start_server()
        try:
            yield str(server.make_url("/api/v3"))
        finally:
            self.over.set()
            await server.close()


def _place(request: web.Request) -> str:
    owner, repo = request.match_info["owner"].lower(), request.match_info.get("repo")
    return owner if repo is None else f"{owner}/{repo}"


def _bearer(request: web.Request) -> str:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or "User-Agent" not in request.headers:
        raise _refuse(401, "Requires authentication")
    return token


_REFUSALS = {
    401: web.HTTPUnauthorized,
    404: web.HTTPNotFound,
    409: web.HTTPConflict,
    422: web.HTTPUnprocessableEntity,
}


def _refuse(status: int, message: str) -> web.HTTPException:
    text = json.dumps({"message": message, "documentation_url": "https://docs.github.com/rest"})
    return _REFUSALS[status](text=text, content_type="application/json")
