"""The stand-in's lists of runs, jobs and repositories, and its ETags."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Paged = Callable[[web.Request, list[Any], str], web.Response]


@dataclass
class StandInLists:
    """`etags` has every list answered with one; `conditional` counts requests that name one."""

    runs: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    jobs: dict[tuple[str, int], list[dict[str, Any]]] = field(default_factory=dict)
    repositories: list[dict[str, Any]] = field(default_factory=list)
    releases: list[Any] = field(default_factory=list)
    etags: bool = False
    conditional: int = 0

    @web.middleware
    async def tag(self, request: web.Request, handler: Any) -> web.StreamResponse:
        """Answer 304 if the request has the current ETag."""
        answer: web.StreamResponse = await handler(request)
        named = request.headers.get("If-None-Match")
        self.conditional += named is not None
        if not self.etags or request.method != "GET" or not isinstance(answer, web.Response):
            return answer
        assert isinstance(answer.body, bytes)
        etag = f'W/"{hashlib.sha256(answer.body).hexdigest()}"'
        if named == etag:
            return web.Response(status=304)
        answer.headers["ETag"] = etag
        return answer

    def add_routes(self, app: web.Application, root: str, need: Any, page: Paged) -> None:
        """Add the routes of the lists. They need a token."""

        async def runs(request: web.Request) -> web.Response:
            need(request)
            status = request.query.get("status")
            found = [
                one
                for one in self.runs.get(_repository(request), [])
                if status in (None, one["status"])
            ]
            return page(request, found[::-1], "workflow_runs")

        async def run(request: web.Request) -> web.Response:
            need(request)
            for one in self.runs.get(_repository(request), []):
                if one["id"] == int(request.match_info["id"]):
                    return web.json_response(one)
            return web.json_response({"message": "Not Found"}, status=404)

        async def jobs(request: web.Request) -> web.Response:
            need(request)
            found = self.jobs.get((_repository(request), int(request.match_info["id"])))
            if found is None:
                return web.json_response({"message": "Not Found"}, status=404)
            return page(request, found, "jobs")

        async def repositories(request: web.Request) -> web.Response:
            need(request)
            return page(request, self.repositories, "repositories")

        async def newest(request: web.Request) -> web.Response:
            need(request)
            assert request.query["sort"] == "created"
            key, down = "created_at", request.query["direction"] == "desc"
            found = sorted(self.repositories, key=lambda one: one[key], reverse=down)
            return web.json_response(found[: int(request.query["per_page"])])

        app.router.add_get(f"{root}/orgs/{{owner}}/repos", newest)
        self._add_releases(app, root, need)
        actions = f"{root}/repos/{{owner}}/{{repo}}/actions"
        app.router.add_get(f"{actions}/runs", runs)
        app.router.add_get(f"{actions}/runs/{{id}}", run)
        app.router.add_get(f"{actions}/runs/{{id}}/jobs", jobs)
        app.router.add_get(f"{root}/installation/repositories", repositories)

    def _add_releases(self, app: web.Application, root: str, need: Any) -> None:
        async def releases(request: web.Request) -> web.Response:
            need(request)
            if _repository(request) != "actions/runner":
                return web.json_response({"message": "Not Found"}, status=404)
            return web.json_response(self.releases[: int(request.query["per_page"])])

        app.router.add_get(f"{root}/repos/{{owner}}/{{repo}}/releases", releases)


def _repository(request: web.Request) -> str:
    return f"{request.match_info['owner']}/{request.match_info['repo']}".lower()
