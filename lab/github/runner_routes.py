"""REST routes for self-hosted runners and runner groups: register, list, read, delete.

Shapes, statuses and messages: GitHub's REST documentation, "Self-hosted runners". The messages of 409 and 422
are those that users have reported.
"""

import base64
import json
from typing import Any

from aiohttp import web

from autoscaler.controller.ports.clock import Clock
from lab.github.actions import Actions, RunnerBusyError
from lab.github.credentials import Caller
from lab.github.directory import Directory
from lab.github.gateway import (
    REGISTRATION,
    Gateway,
    NotFoundError,
    Page,
    RefusedError,
    json_object,
    whole_number,
)
from lab.github.records import Runner
from lab.github.runners import NameTakenError, RunnerScope
from lab.github.settings import LabGitHubOptions, LabRunnerGroup
from lab.github.shapes import Shapes, runner

_NAME_LENGTH = 64
_LABELS = 100
_LABEL_LENGTH = 256


class RunnerRoutes:
    """The handlers for callers with an installation token. `options` give the scale and the list cache."""

    def __init__(
        self,
        gateway: Gateway,
        directory: Directory,
        actions: Actions,
        shapes: Shapes,
        clock: Clock,
        options: LabGitHubOptions,
    ) -> None:
        self._gateway = gateway
        self._directory = directory
        self._actions = actions
        self._shapes = shapes
        self._scale = options.scale
        self._clock = clock
        self._list_cache = options.list_cache
        self._kept: dict[str, tuple[float, int, list[dict[str, Any]]]] = {}

    def routes(self) -> list[web.RouteDef]:
        """Return the routes of organizations' and repositories' runners, and of runner groups."""
        add = self._gateway.for_installation
        groups = "/orgs/{org}/actions/runner-groups"
        found = [
            add("GET", groups, self._groups),
            add("POST", groups, self._create_group),
            add("GET", f"{groups}/{{runner_group_id}}/repositories", self._repositories_of_group),
        ]
        for scope in ("/orgs/{org}", "/repos/{owner}/{repo}"):
            runners = f"{scope}/actions/runners"
            found += [
                add("POST", f"{runners}/generate-jitconfig", self._register, REGISTRATION),
                add("GET", runners, self._list),
                add("GET", f"{runners}/{{runner_id}}", self._one),
                add("DELETE", f"{runners}/{{runner_id}}", self._delete),
            ]
        return found

    async def _groups(self, request: web.Request, caller: Caller) -> web.Response:
        organization = self._scope(request, caller).organization
        page = self._gateway.page_of(request)
        groups = list(organization.groups.values())
        shapes = [self._shapes.runner_group(organization.login, one) for one in page.cut(groups)]
        return self._gateway.paged(request, page, len(groups), {"runner_groups": shapes})

    async def _create_group(self, request: web.Request, caller: Caller) -> web.Response:
        organization = self._scope(request, caller).organization
        body = await json_object(request)
        ids = set(body.get("selected_repository_ids", ()))
        chosen = tuple(one.name for one in organization.repositories.values() if one.id in ids)
        group = LabRunnerGroup(
            _name(body),
            chosen if body.get("visibility") == "selected" else None,
            allows_public_repositories=body.get("allows_public_repositories", False),
        )
        try:
            made = self._directory.create_group(organization.login, group)
        except ValueError:
            raise RefusedError(409, "Runner group name already exists") from None
        return web.json_response(self._shapes.runner_group(organization.login, made), status=201)

    async def _repositories_of_group(self, request: web.Request, caller: Caller) -> web.Response:
        organization = self._scope(request, caller).organization
        group = organization.groups.get(whole_number(request.match_info["runner_group_id"], 0))
        if group is None:
            raise NotFoundError
        page = self._gateway.page_of(request)
        names = group.repositories or ()
        found = [organization.repositories[name] for name in sorted(names)]
        shapes = [self._shapes.repository(one) for one in page.cut(found)]
        return self._gateway.paged(request, page, len(found), {"repositories": shapes})

    async def _register(self, request: web.Request, caller: Caller) -> web.Response:
        scope = self._scope(request, caller)
        assert caller.installation is not None
        body = await json_object(request)
        name, group_id, labels = _name(body), _group_id(body), _labels(body)
        group = scope.organization.groups.get(group_id)
        if group is None or (scope.repository is not None and group_id != 1):
            raise NotFoundError
        if not self._actions.runners.taken(scope, name):
            self._gateway.charge_registration(caller, scope.organization.login.lower())
        try:
            fresh = self._actions.runners.add(scope, group, name, labels, caller.installation.id)
        except NameTakenError:
            message = f"Already exists - A runner with the name {name} already exists."
            raise RefusedError(409, message) from None
        config = {
            "server": self._gateway.origin,
            "runner_id": fresh.id,
            "token": fresh.token,
            "name": fresh.name,
            "scale": self._scale,
        }
        encoded = base64.b64encode(json.dumps(config).encode()).decode()
        return web.json_response(
            {"runner": self._shape(fresh), "encoded_jit_config": encoded}, status=201
        )

    async def _list(self, request: web.Request, caller: Caller) -> web.Response:
        scope = self._scope(request, caller)
        page = self._gateway.page_of(request)
        now = self._clock.now()
        until, total, shapes = self._kept.get(request.path_qs, (0.0, 0, []))
        if until <= now:
            total, shapes = self._listed(scope, page, request.query.get("name"))
            if self._list_cache:
                until = now + self._list_cache
                self._kept = {key: kept for key, kept in self._kept.items() if kept[0] > now}
                self._kept[request.path_qs] = (until, total, shapes)
        return self._gateway.paged(request, page, total, {"runners": shapes})

    def _listed(
        self, scope: RunnerScope, page: Page, name: str | None
    ) -> tuple[int, list[dict[str, Any]]]:
        """Return the number of runners, and those of this page."""
        if name is None or not self._gateway.filters_names:
            runners = self._actions.runners.of_scope(scope)
        else:
            named = self._actions.runners.named(scope, name)
            runners = [named] if named is not None else []
        return len(runners), [self._shape(one) for one in page.cut(runners)]

    async def _one(self, request: web.Request, caller: Caller) -> web.Response:
        return web.json_response(self._shape(self._find(request, caller)))

    async def _delete(self, request: web.Request, caller: Caller) -> web.Response:
        found = self._find(request, caller)
        try:
            self._actions.delete(found)
        except RunnerBusyError:
            message = f'Bad request - Runner "{found.name}" is still running a job"'
            raise RefusedError(422, message) from None
        return web.Response(status=204)

    def _shape(self, record: Runner) -> dict[str, Any]:
        return runner(record, online=self._actions.runners.online(record))

    def _find(self, request: web.Request, caller: Caller) -> Runner:
        number = whole_number(request.match_info["runner_id"], 0)
        found = self._actions.runners.find(self._scope(request, caller), number)
        if found is None:
            raise NotFoundError
        return found

    def _scope(self, request: web.Request, caller: Caller) -> RunnerScope:
        """Return the scope in the path. Raises NotFoundError if this installation may not see it."""
        where = request.match_info
        organization = self._directory.organization(where.get("org") or where["owner"])
        if organization is None:
            raise NotFoundError
        if caller.installation is None or caller.installation.organization != organization.login:
            raise RefusedError(403, "Resource not accessible by integration")
        if "org" in where:
            return RunnerScope(organization, None)
        repository = organization.repositories.get(where["repo"].lower())
        if repository is None:
            raise NotFoundError
        return RunnerScope(organization, repository)


def _invalid(what: str) -> RefusedError:
    return RefusedError(422, f"Invalid request.\n\n{what}")


def _name(body: dict[str, Any]) -> str:
    name = body.get("name")
    if not isinstance(name, str) or not 0 < len(name) <= _NAME_LENGTH:
        raise _invalid(f'"name" is to be text of 1 to {_NAME_LENGTH} characters.')
    return name


def _group_id(body: dict[str, Any]) -> int:
    number = body.get("runner_group_id")
    if not isinstance(number, int) or isinstance(number, bool):
        raise _invalid('"runner_group_id" wasn\'t supplied or is no integer.')
    return number


def _labels(body: dict[str, Any]) -> list[str]:
    labels = body.get("labels")
    if not isinstance(labels, list) or not 0 < len(labels) <= _LABELS:
        raise _invalid(f'"labels" is to be a list of 1 to {_LABELS} labels.')
    for label in labels:
        if not isinstance(label, str) or not 0 < len(label) <= _LABEL_LENGTH:
            raise _invalid(f'"labels" are to be text of 1 to {_LABEL_LENGTH} characters.')
    return labels
