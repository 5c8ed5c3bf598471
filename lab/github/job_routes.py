"""REST routes for jobs and runs, rate limits and GitHub's addresses.

Shapes and statuses: GitHub's REST documentation, "Workflow jobs", "Workflow runs", "Rate limit",
"Meta".
"""

from datetime import datetime
from typing import Any

from aiohttp import web

from autoscaler.controller.ports.clock import Clock
from lab.github.credentials import Caller
from lab.github.directory import Directory
from lab.github.gateway import (
    CORE,
    REGISTRATION,
    Gateway,
    NotFoundError,
    RefusedError,
    whole_number,
)
from lab.github.job_shapes import job_shape, run_shape, run_status, visible
from lab.github.limits import Bucket
from lab.github.records import JobStatus, Repository
from lab.github.settings import ENTERPRISE_VERSION
from lab.github.shapes import Shapes
from lab.github.workflows import Workflows

_LOOPBACK = ["127.0.0.0/8"]

_API_VERSIONS = ["2022-11-28", "2026-03-10"]
"""The versions of GitHub's API."""
# GitHub lists these resources, though the lab lacks most of them.
_ROOT = {
    "authorizations": "/authorizations",
    "code_search": "/search/code?q={query}{&page,per_page,sort,order}",
    "commit_search": "/search/commits?q={query}{&page,per_page,sort,order}",
    "current_user": "/user",
    "current_user_authorizations_html": "/settings/connections/applications{/client_id}",
    "current_user_repositories": "/user/repos{?type,page,per_page,sort}",
    "emails": "/user/emails",
    "emojis": "/emojis",
    "events": "/events",
    "feeds": "/feeds",
    "followers": "/user/followers",
    "following": "/user/following{/target}",
    "gists": "/gists{/gist_id}",
    "issue_search": "/search/issues?q={query}{&page,per_page,sort,order}",
    "issues": "/issues",
    "keys": "/user/keys",
    "label_search": "/search/labels?q={query}&repository_id={repository_id}{&page,per_page}",
    "notifications": "/notifications",
    "organization": "/orgs/{org}",
    "organization_repositories": "/orgs/{org}/repos{?type,page,per_page,sort}",
    "organization_teams": "/orgs/{org}/teams",
    "public_gists": "/gists/public",
    "rate_limit": "/rate_limit",
    "repository": "/repos/{owner}/{repo}",
    "repository_search": "/search/repositories?q={query}{&page,per_page,sort,order}",
    "starred": "/user/starred{/owner}{/repo}",
    "starred_gists": "/gists/starred",
    "user": "/users/{user}",
    "user_organizations": "/user/orgs",
    "user_repositories": "/users/{user}/repos{?type,page,per_page,sort}",
    "user_search": "/search/users?q={query}{&page,per_page,sort,order}",
}


_PAGES_WITH_FILTER, _MOST_COUNTED = 10, 2_500
"""Pages and count of a list of runs with a filter, at most (github.blog, changelog of 2026-09-25)."""


def _created_within(at: float, created: str) -> bool:
    """Whether a time is in a range of GitHub's search syntax: `<=TIME`, `>=TIME` or `TIME..TIME`."""
    earliest, latest = "*", "*"
    if created.startswith("<="):
        latest = created[2:]
    elif created.startswith(">="):
        earliest = created[2:]
    else:
        earliest, _, latest = created.partition("..")
    try:
        bounds = [
            None if text == "*" else datetime.fromisoformat(text).timestamp()
            for text in (earliest, latest)
        ]
    except ValueError:
        raise RefusedError(422, "Validation Failed") from None
    since, until = bounds
    # GitHub's times have no fractions.
    return (since is None or since <= int(at)) and (until is None or int(at) <= until)


class JobRoutes:
    """The handlers for callers with an installation token."""

    def __init__(
        self, gateway: Gateway, directory: Directory, workflows: Workflows, shapes: Shapes
    ) -> None:
        self._gateway = gateway
        self._directory = directory
        self._workflows = workflows
        self._shapes = shapes

    def routes(self) -> list[web.RouteDef]:
        """Return the routes of an installation's repositories, of jobs, of runs and their jobs."""
        add = self._gateway.for_installation
        actions = "/repos/{owner}/{repo}/actions"
        return [
            add("GET", "/installation/repositories", self._repositories),
            add("GET", "/orgs/{org}/repos", self._repositories_of),
            add("GET", "/repos/{owner}/{repo}", self._one_repository),
            add("GET", f"{actions}/jobs/{{job_id}}", self._job),
            add("GET", f"{actions}/runs", self._runs),
            add("GET", f"{actions}/runs/{{run_id}}", self._run),
            add("GET", f"{actions}/runs/{{run_id}}/jobs", self._jobs_of_run),
        ]

    async def _repositories(self, request: web.Request, caller: Caller) -> web.Response:
        if caller.installation is None:
            raise RefusedError(403, "Resource not accessible by integration")
        organization = self._directory.organizations[caller.installation.organization.lower()]
        found = list(organization.repositories.values())
        page = self._gateway.page_of(request)
        body = {
            "repository_selection": "all",
            "repositories": [self._shapes.repository(one) for one in page.cut(found)],
        }
        return self._gateway.paged(request, page, len(found), body)

    async def _repositories_of(self, request: web.Request, caller: Caller) -> web.Response:
        organization = self._directory.organization(request.match_info["org"])
        if organization is None:
            raise NotFoundError
        if caller.installation is None or caller.installation.organization != organization.login:
            raise RefusedError(403, "Resource not accessible by integration")
        query = request.query
        found = list(organization.repositories.values())
        if query.get("sort") == "created":
            # GitHub's order by creation is descending unless the request says otherwise.
            found.sort(key=lambda one: one.created_at, reverse=query.get("direction") != "asc")
        page = self._gateway.page_of(request)
        shapes = [self._shapes.repository(one) for one in page.cut(found)]
        headers = self._gateway.page_links(request, page, len(found))
        return web.json_response(shapes, headers=headers)

    async def _one_repository(self, request: web.Request, caller: Caller) -> web.Response:
        shape = self._shapes.repository(self._repository(request, caller))
        return web.json_response({**shape, "network_count": 0, "subscribers_count": 0})

    async def _job(self, request: web.Request, caller: Caller) -> web.Response:
        repository = self._repository(request, caller)
        job = self._workflows.jobs.get(whole_number(request.match_info["job_id"], 0))
        if job is None or job.run.repository is not repository or job.status is JobStatus.BLOCKED:
            raise NotFoundError
        return web.json_response(job_shape(self._shapes, job))

    async def _jobs_of_run(self, request: web.Request, caller: Caller) -> web.Response:
        repository = self._repository(request, caller)
        run = self._workflows.runs.get(whole_number(request.match_info["run_id"], 0))
        if run is None or run.repository is not repository:
            raise NotFoundError
        page = self._gateway.page_of(request)
        jobs = visible(run, every_attempt=request.query.get("filter") == "all")
        shapes = [job_shape(self._shapes, job) for job in page.cut(jobs)]
        return self._gateway.paged(request, page, len(jobs), {"jobs": shapes})

    async def _run(self, request: web.Request, caller: Caller) -> web.Response:
        repository = self._repository(request, caller)
        run = self._workflows.runs.get(whole_number(request.match_info["run_id"], 0))
        if run is None or run.repository is not repository:
            raise NotFoundError
        return web.json_response(run_shape(self._shapes, run))

    async def _runs(self, request: web.Request, caller: Caller) -> web.Response:
        repository = self._repository(request, caller)
        status = request.query.get("status")
        runs = list(self._workflows.runs_of.get(repository.full_name, {}).values())
        created = request.query.get("created")
        if status is not None:
            runs = [run for run in runs if status in run_status(run)]
        if created is not None:
            runs = [run for run in runs if _created_within(run.created_at, created)]
        runs.reverse()
        total = len(runs)
        if status is not None or created is not None:
            total = min(total, _MOST_COUNTED)
            runs = runs[: _PAGES_WITH_FILTER * self._gateway.longest_page]
        page = self._gateway.page_of(request)
        shapes = [run_shape(self._shapes, run) for run in page.cut(runs)]
        headers = self._gateway.page_links(request, page, len(runs))
        body = {"total_count": total, "workflow_runs": shapes}
        return web.json_response(body, headers=headers)

    def _repository(self, request: web.Request, caller: Caller) -> Repository:
        owner, name = request.match_info["owner"], request.match_info["repo"]
        repository = self._directory.repository(owner, name)
        if repository is None:
            raise NotFoundError
        if caller.installation is None or caller.installation.organization != repository.owner:
            raise RefusedError(403, "Resource not accessible by integration")
        return repository


class SelfRoutes:
    """The handlers for requests about GitHub itself."""

    def __init__(self, gateway: Gateway, clock: Clock) -> None:
        self._gateway = gateway
        self._clock = clock

    def routes(self) -> list[web.RouteDef]:
        """Return these routes. Only /rate_limit needs credentials. An unknown path is 404."""
        return [
            self._gateway.for_installation("GET", "/rate_limit", self._rate_limit, None),
            self._gateway.for_anyone("GET", "/meta", self._meta),
            self._gateway.for_anyone("GET", "/versions", self._versions),
            self._gateway.for_anyone("GET", "/", self._root),
        ]

    def catch_all(self) -> web.RouteDef:
        """Return the last route, which answers every unknown path."""
        return self._gateway.for_anyone("*", "/{path:.*}", self._unknown)

    async def _rate_limit(self, _request: web.Request, caller: Caller) -> web.Response:
        core = self._bucket(caller, CORE)
        resources = {CORE: core, "search": core, REGISTRATION: self._bucket(caller, REGISTRATION)}
        return web.json_response({"resources": resources, "rate": core})

    def _bucket(self, caller: Caller, resource: str) -> dict[str, int]:
        bucket: Bucket | None = self._gateway.limits.hourly(caller.key, resource, self._clock.now())
        if bucket is None:
            # An Enterprise Server without limits answers this.
            raise RefusedError(404, "Rate limiting is not enabled.")
        return {
            "limit": bucket.limit,
            "used": bucket.used,
            "remaining": bucket.remaining,
            "reset": int(bucket.reset),
        }

    async def _meta(self, _request: web.Request) -> web.Response:
        body: dict[str, Any] = {
            "verifiable_password_authentication": False,
            "hooks": _LOOPBACK,
            "web": _LOOPBACK,
            "api": _LOOPBACK,
            "actions": _LOOPBACK,
        }
        if self._gateway.base_path:
            body["installed_version"] = ENTERPRISE_VERSION
        return web.json_response(body)

    async def _versions(self, _request: web.Request) -> web.Response:
        return web.json_response(_API_VERSIONS)

    async def _root(self, _request: web.Request) -> web.Response:
        api = self._gateway.origin + self._gateway.base_path
        return web.json_response({f"{name}_url": api + path for name, path in _ROOT.items()})

    async def _unknown(self, _request: web.Request) -> web.Response:
        raise NotFoundError
