"""Implements the port `GitHubLists` with the REST API.

All requests have the lowest importance, so they fail first if GitHub's limits do not allow all.

Routes: docs.github.com REST "Apps: installations", "Workflow runs", "Workflow jobs",
"Self-hosted runners".
"""

from dataclasses import replace

import structlog

from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.github import (
    GitHubError,
    RegisteredRunner,
    RetryLaterError,
    github_errors,
)
from autoscaler.controller.ports.github_lists import ListedRepository, ListedRun, Listing
from autoscaler.github.apps.authentication import Installation
from autoscaler.github.apps.selection import AppSelection
from autoscaler.github.apps.targets import Target, target_of_repository, target_of_scope
from autoscaler.github.jobs import Source
from autoscaler.github.lists.formats import (
    DEPRECATION,
    NEWEST,
    REPOSITORIES,
    RUN,
    RUNNERS,
    RUNS,
    RUNS_WITH_TIMES,
    jobs_format,
    oldest_time,
)
from autoscaler.github.lists.page_cache import (
    FILTERED_PAGES,
    MAX_PAGES,
    PER_PAGE,
    Item,
    PageCache,
    PageFormat,
    Pages,
    Shape,
)
from autoscaler.github.requests.budget import Budget
from autoscaler.github.requests.exchange import Importance, Request
from autoscaler.github.requests.outcomes import OUTAGE_DELAY, NotShownError, error_of_all
from autoscaler.model.events import JobObserved
from autoscaler.model.identifiers import Instant

FASTEST = 10.0
"""Requests per second for lists, at most; the rate if GitHub has no hourly limit."""

NEWEST_SHOWN = 30
"""How many of an organization's newest repositories are listed: GitHub's default page."""

ASSUMED_LIMIT = 5_000
"""Requests an hour, assumed until an answer reports the limit: GitHub's smallest."""

_RUNNER = Target("actions", "runner")

_log = structlog.get_logger(__name__)


@github_errors
class Lists:
    """Reads each list with the App that has the most headroom, and each known page with its ETag."""

    def __init__(
        self,
        pages: PageCache,
        apps: AppSelection,
        budget: Budget,
        clock: Clock,
        limited: bool,
    ) -> None:
        """`limited`: assume an hourly limit until GitHub's answers report one."""
        self._pages = pages
        self._apps = apps
        self._budget = budget
        self._clock = clock
        self._limited = limited

    async def repositories(self, scope: str) -> Listing[ListedRepository]:
        """See `GitHubLists`. Leaves out archived repositories, which run no jobs.

        If an App fails, returns the repositories that the other Apps see.
        """
        target = target_of_scope(scope)
        if target.repository is not None:
            return Listing((ListedRepository(str(target)),))
        request = _list_request("/installation/repositories{?per_page}", {"per_page": PER_PAGE})
        found: dict[str, ListedRepository] = {}
        errors: list[GitHubError] = []
        calls, whole = 0, True
        callers = await self._apps.installations(target)
        for caller in callers:
            # Each App's installation may have access to different repositories.
            try:
                read = await self._pages.read(request, caller, REPOSITORIES)
            except GitHubError as error:
                _log.warning("app_failing", app=caller.name, scope=scope, error=str(error))
                errors.append(error)
                continue
            found.update((one.name, one) for one in read.items)
            calls += read.calls
            if not read.whole:
                _log.warning("repositories_cut", app=caller.name, scope=scope, shown=len(found))
                whole = False
        if len(errors) == len(callers):
            raise error_of_all(errors)
        return Listing(tuple(found.values()), calls, whole and not errors)

    async def newest_repositories(self, scope: str) -> Listing[ListedRepository]:
        """See `GitHubLists`. docs.github.com, REST "Repositories": `sort=created`, newest first."""
        target = target_of_scope(scope)
        request = _list_request(
            "/orgs/{org}/repos{?sort,direction,per_page}",
            {**target.variables, "sort": "created", "direction": "desc", "per_page": NEWEST_SHOWN},
        )
        return await self._read(target, request, NEWEST, most=1)

    async def newest_runs(self, repository: str) -> Listing[ListedRun]:
        """See `GitHubLists`."""
        target = target_of_repository(repository)
        request = _list_request(
            f"{target.route}/actions/runs{{?per_page}}", {**target.variables, "per_page": PER_PAGE}
        )
        return await self._read(target, request, RUNS, most=1)

    async def runs(self, repository: str, status: str) -> Listing[ListedRun]:
        """See `GitHubLists`.

        GitHub ends such a list after its newest 1,000 runs and says so nowhere, so a list of as many pages
        is followed by the list of the runs that were created no later than its oldest.
        """
        target = target_of_repository(repository)
        request = _list_request(
            f"{target.route}/actions/runs{{?status,created,per_page}}",
            {**target.variables, "status": status, "per_page": PER_PAGE},
        )
        found: dict[int, ListedRun] = {}
        pages = calls = 0
        until = ""
        while pages < MAX_PAGES:
            read = await self._read_pages(target, request, RUNS_WITH_TIMES, FILTERED_PAGES)
            found.update((run.id, run) for run, _ in read.items)
            pages, calls = pages + read.pages, calls + read.calls
            if read.pages < FILTERED_PAGES:
                return Listing(tuple(found.values()), calls)
            oldest = oldest_time(created for _, created in read.items)
            if oldest in ("", until):
                text = f"{request.endpoint}: too many runs of one second, or without a time"
                raise RetryLaterError(text, OUTAGE_DELAY)
            until = oldest
            request = replace(request, variables={**request.variables, "created": f"<={until}"})
        raise _too_many(request, MAX_PAGES)

    async def run(self, repository: str, run_id: int) -> Listing[ListedRun]:
        """See `GitHubLists`."""
        target = target_of_repository(repository)
        request = _list_request(
            f"{target.route}/actions/runs/{{run_id}}", {**target.variables, "run_id": run_id}
        )
        try:
            return await self._read(target, request, RUN)
        except NotShownError:
            return Listing((), 1)

    async def jobs(self, repository: str, run_id: int, now: Instant) -> Listing[JobObserved]:
        """See `GitHubLists`. Leaves out unreadable jobs."""
        target = target_of_repository(repository)
        request = _list_request(
            f"{target.route}/actions/runs/{{run_id}}/jobs{{?filter,per_page}}",
            {**target.variables, "run_id": run_id, "filter": "latest", "per_page": PER_PAGE},
        )
        page_format = jobs_format(Source(repository, now, read=True), run_id)
        try:
            read = await self._read(target, request, page_format)
        except NotShownError:
            return Listing((), 1)
        return Listing(tuple(replace(job, at=now) for job in read.items), read.calls)

    async def runners(self, scope: str) -> Listing[RegisteredRunner]:
        """See `GitHubLists`."""
        target = target_of_scope(scope)
        request = _list_request(
            f"{target.route}/actions/runners{{?per_page}}",
            {**target.variables, "per_page": PER_PAGE},
        )
        return await self._read(target, request, RUNNERS)

    async def runner_version_end(self, scope: str, version: str) -> Instant | None:
        """See `GitHubLists`. Source: github.blog, changelog of 2026-09-03."""
        target = target_of_scope(scope)
        request = _list_request(
            f"{target.route}/actions/runners/deprecations/{{version}}",
            {**target.variables, "version": version},
        )
        # An App that is refused here is not tried later at the scope because of it.
        listed = await self._read(target, request, DEPRECATION, most=1, about=_RUNNER)
        return min(listed.items, default=None)

    def pace(self, scope: str) -> float:
        """See `GitHubLists`."""
        callers = self._apps.known(target_of_scope(scope))
        assumed = ASSUMED_LIMIT if self._limited else None
        request, now = _list_request("/installation/repositories", {}), self._clock.now()
        paces = [self._budget.pace(one.name, request, now, assumed) for one in callers]
        # The first request finds the installations. Before it, one request a second is allowed.
        return min(FASTEST, sum(paces)) if paces else 1.0

    async def _read(
        self,
        target: Target,
        request: Request,
        page_format: PageFormat[Shape, Item],
        most: int = MAX_PAGES,
        about: Target | None = None,
    ) -> Listing[Item]:
        """Return a list. `about`: what the request is about, if it is not the target."""
        read = await self._read_pages(target, request, page_format, most, about)
        if most == MAX_PAGES and not read.whole:
            # A caller would take a part for the whole list, and the other runners for absent.
            raise _too_many(request, most)
        return Listing(read.items, read.calls)

    async def _read_pages(
        self,
        target: Target,
        request: Request,
        page_format: PageFormat[Shape, Item],
        most: int,
        about: Target | None = None,
    ) -> Pages[Item]:
        async def read_with(caller: Installation) -> Pages[Item]:
            return await self._pages.read(request, caller, page_format, most)

        candidates = await self._apps.installations(target)
        return await self._apps.run(candidates, about or target, request, read_with)


def _too_many(request: Request, pages: int) -> GitHubError:
    return RetryLaterError(f"{request.endpoint}: more than {pages} pages", OUTAGE_DELAY)


def _list_request(route: str, variables: dict[str, str | int]) -> Request:
    return Request("GET", route, variables, importance=Importance.SYNC, expected=frozenset({404}))
