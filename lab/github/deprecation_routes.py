"""The REST routes that say when GitHub stops giving jobs to a version of actions/runner.

Route: github.blog, changelog of 2026-09-03. Answers as github.com gave them on 2026-09-30
(github.com/The-DevOps-Daily/runner-version-window): no `registration_deprecates_at`, null for the newest
version, and 404 for a version that GitHub does not know.
"""

from collections.abc import Mapping

from aiohttp import web

from lab.github.credentials import Caller
from lab.github.directory import Directory
from lab.github.gateway import Gateway, NotFoundError, RefusedError
from lab.github.shapes import timestamp


class DeprecationRoutes:
    """The handlers for callers with an installation token.

    `ends` has the known versions, such as `2.338.0`, with their ends in lab time. An Enterprise Server has no
    such route: it knows none.
    """

    def __init__(
        self, gateway: Gateway, directory: Directory, ends: Mapping[str, float | None]
    ) -> None:
        self._gateway = gateway
        self._directory = directory
        self._ends = ends

    def routes(self) -> list[web.RouteDef]:
        """Return the routes of organizations and repositories."""
        path = "/actions/runners/deprecations/{version}"
        return [
            self._gateway.for_installation("GET", f"{scope}{path}", self._end)
            for scope in ("/orgs/{org}", "/repos/{owner}/{repo}")
        ]

    async def _end(self, request: web.Request, caller: Caller) -> web.Response:
        where, version = request.match_info, request.match_info["version"]
        account = where.get("org") or where["owner"]
        if caller.installation is None or caller.installation.organization != account:
            raise RefusedError(403, "Resource not accessible by integration")
        if "repo" in where and self._directory.repository(account, where["repo"]) is None:
            raise NotFoundError
        if version not in self._ends:
            raise NotFoundError
        end = self._ends[version]
        shown = None if end is None else timestamp(end)
        return web.json_response({"runner_version": version, "runtime_deprecates_at": shown})
