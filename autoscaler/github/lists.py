"""GitHub's lists over the REST API: repositories, runs, a run's jobs, runners.

Implements the port `GitHubLists`. Everything here is of the lowest importance: it is refused
first where GitHub's limits are short. It decides what an answer means; never what to read when.

Routes: docs.github.com REST "Apps: installations", "Workflow runs", "Workflow jobs",
"Self-hosted runners".
"""

from dataclasses import replace

import structlog

from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.github import GitHubError, RegisteredRunner, RetryLaterError
from autoscaler.controller.ports.github_lists import ListedRepository, ListedRun, Listing
from autoscaler.github.app_auth import Installation
from autoscaler.github.budget import Budget
from autoscaler.github.exchange import Importance, Request
from autoscaler.github.installations import Installations
from autoscaler.github.jobs import Sighting
from autoscaler.github.known_pages import (
    MAX_PAGES,
    PER_PAGE,
    Form,
    Item,
    KnownPages,
    Pages,
    Shape,
)
from autoscaler.github.list_pages import NEWEST, REPOSITORIES, RUN, RUNNERS, RUNS, jobs_form
from autoscaler.github.refusals import OUTAGE_DELAY, NotShownError, gravest
from autoscaler.github.sharing import Sharing
from autoscaler.github.targets import Target, target_of_repository, target_of_scope
from autoscaler.model.events import JobObserved
from autoscaler.model.identifiers import Instant

FASTEST = 10.0
"""Questions a second for lists, where GitHub has no hourly limit (an Enterprise Server)."""

NEWEST_SHOWN = 30
"""How many of an organization's newest repositories are listed: GitHub's default page."""

UNTOLD = 5_000
"""Requests an hour: GitHub's least, believed until an answer tells the account's own."""

_log = structlog.get_logger(__name__)


class Lists:
    """Reads lists by whichever App has most room, each page by its ETag once it has one."""

    def __init__(
        self,
        pages: KnownPages,
        installations: Installations,
        sharing: Sharing,
        budget: Budget,
        clock: Clock,
        limited: bool,
    ) -> None:
        """`limited`: whether this GitHub has an hourly limit before its answers tell one."""
        self._pages = pages
        self._installations = installations
        self._sharing = sharing
        self._budget = budget
        self._clock = clock
        self._limited = limited
        self._callers: dict[str, tuple[Installation, ...]] = {}

    async def repositories(self, scope: str) -> Listing[ListedRepository]:
        """See `GitHubLists`. Archived ones run nothing and are left out.

        An App that cannot be asked hides none of the others' repositories.
        """
        target = target_of_scope(scope)
        if target.repository is not None:
            return Listing((ListedRepository(str(target)),))
        request = _question("/installation/repositories{?per_page}", {"per_page": PER_PAGE})
        found: dict[str, ListedRepository] = {}
        errors: list[GitHubError] = []
        calls, whole = 0, True
        callers = await self._candidates(target)
        for caller in callers:
            # Each App's installation may have been given other repositories.
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
            raise gravest(errors)
        return Listing(tuple(found.values()), calls, whole and not errors)

    async def newest_repositories(self, scope: str) -> Listing[ListedRepository]:
        """See `GitHubLists`. docs.github.com, REST "Repositories": `sort=created`, newest first."""
        target = target_of_scope(scope)
        request = _question(
            "/orgs/{org}/repos{?sort,direction,per_page}",
            {**target.variables, "sort": "created", "direction": "desc", "per_page": NEWEST_SHOWN},
        )
        return await self._read(target, request, NEWEST, most=1)

    async def newest_runs(self, repository: str) -> Listing[ListedRun]:
        """See `GitHubLists`."""
        target = target_of_repository(repository)
        request = _question(
            f"{target.route}/actions/runs{{?per_page}}", {**target.variables, "per_page": PER_PAGE}
        )
        return await self._read(target, request, RUNS, most=1)

    async def runs(self, repository: str, status: str) -> Listing[ListedRun]:
        """See `GitHubLists`."""
        target = target_of_repository(repository)
        request = _question(
            f"{target.route}/actions/runs{{?status,per_page}}",
            {**target.variables, "status": status, "per_page": PER_PAGE},
        )
        return await self._read(target, request, RUNS)

    async def run(self, repository: str, run_id: int) -> Listing[ListedRun]:
        """See `GitHubLists`."""
        target = target_of_repository(repository)
        request = _question(
            f"{target.route}/actions/runs/{{run_id}}", {**target.variables, "run_id": run_id}
        )
        try:
            return await self._read(target, request, RUN)
        except NotShownError:
            return Listing((), 1)

    async def jobs(self, repository: str, run_id: int, now: Instant) -> Listing[JobObserved]:
        """See `GitHubLists`. A job that is not understood is left out."""
        target = target_of_repository(repository)
        request = _question(
            f"{target.route}/actions/runs/{{run_id}}/jobs{{?filter,per_page}}",
            {**target.variables, "run_id": run_id, "filter": "latest", "per_page": PER_PAGE},
        )
        form = jobs_form(Sighting(repository, now, read=True), run_id)
        try:
            read = await self._read(target, request, form)
        except NotShownError:
            return Listing((), 1)
        return Listing(tuple(replace(job, at=now) for job in read.items), read.calls)

    async def runners(self, scope: str) -> Listing[RegisteredRunner]:
        """See `GitHubLists`."""
        target = target_of_scope(scope)
        request = _question(
            f"{target.route}/actions/runners{{?per_page}}",
            {**target.variables, "per_page": PER_PAGE},
        )
        return await self._read(target, request, RUNNERS)

    def pace(self, scope: str) -> float:
        """See `GitHubLists`."""
        callers = self._callers.get(target_of_scope(scope).account, ())
        untold = UNTOLD if self._limited else None
        request, now = _question("/installation/repositories", {}), self._clock.now()
        paces = [self._budget.pace(one.name, request, now, untold) for one in callers]
        # Before the first answer there is no caller to tell of: one question finds them.
        return min(FASTEST, sum(paces)) if paces else 1.0

    async def _candidates(self, target: Target) -> tuple[Installation, ...]:
        found = (
            await self._installations.of_scope(target)
            if target.repository is None
            else await self._installations.of_repository(target)
        )
        self._callers[target.account] = found
        return found

    async def _read(
        self, target: Target, request: Request, form: Form[Shape, Item], most: int = MAX_PAGES
    ) -> Listing[Item]:
        async def by(caller: Installation) -> Pages[Item]:
            return await self._pages.read(request, caller, form, most)

        read = await self._sharing.carry(await self._candidates(target), target, request, by)
        if most == MAX_PAGES and not read.whole:
            # A part of it would be taken for all: of the registrations, that nobody else works.
            raise RetryLaterError(f"{request.endpoint}: more than {most} pages", OUTAGE_DELAY)
        return Listing(read.items, read.calls)


def _question(route: str, variables: dict[str, str | int]) -> Request:
    return Request("GET", route, variables, importance=Importance.SYNC, expected=frozenset({404}))
