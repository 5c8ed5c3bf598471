"""GitHub's lists over the REST API: repositories, runs, a run's jobs, runners.

Implements the port `GitHubLists`. Everything here is of the lowest importance: it is refused
first where GitHub's limits are short. It decides what an answer means; never what to read when.

Routes: docs.github.com REST "Apps: installations", "Workflow runs", "Workflow jobs",
"Self-hosted runners".
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Annotated

import structlog
from pydantic import (
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.github import RegisteredRunner
from autoscaler.controller.ports.github_lists import ListedRepository, ListedRun, Listing
from autoscaler.github.app_auth import Installation
from autoscaler.github.budget import Budget
from autoscaler.github.exchange import Importance, Request
from autoscaler.github.installations import Installations
from autoscaler.github.jobs import (
    JOB_STATES,
    MAX_TEXT,
    RepositoryName,
    Sighting,
    WorkflowJob,
    observe,
)
from autoscaler.github.known_pages import MAX_PAGES, KnownPages, Pages, Shape
from autoscaler.github.received import Received
from autoscaler.github.refusals import NotShownError, unanswered
from autoscaler.github.sharing import Sharing
from autoscaler.github.targets import Target, target_of_repository, target_of_scope
from autoscaler.github.timestamps import instant_of
from autoscaler.model.events import JobObserved
from autoscaler.model.identifiers import Instant, RunnerName

FASTEST = 10.0
"""Questions a second for lists, where GitHub has no hourly limit (an Enterprise Server)."""

UNTOLD = 5_000
"""Requests an hour: GitHub's least, believed until an answer tells the account's own."""

_log = structlog.get_logger(__name__)


class _Repository(Received):
    full_name: RepositoryName
    pushed_at: Annotated[str, Field(max_length=40)] | None = None
    archived: bool = False


class _RepositoryPage(Received):
    repositories: list[_Repository]


class _Run(Received):
    id: Annotated[int, Field(gt=0, lt=2**63)]
    status: Annotated[str, Field(max_length=MAX_TEXT)] | None = None
    run_attempt: int | None = None
    updated_at: Annotated[str, Field(max_length=40)] | None = None


class _RunPage(Received):
    workflow_runs: list[_Run]


def _if_understood(job: object, read: ValidatorFunctionWrapHandler) -> WorkflowJob | None:
    # Its labels are a stranger's to write: one job's must not hide the others.
    try:
        understood: WorkflowJob = read(job)
    except ValidationError:
        return None
    return understood


class _JobPage(Received):
    jobs: list[Annotated[WorkflowJob | None, WrapValidator(_if_understood)]]


class ListedRunner(Received):
    """A registration as GitHub writes it."""

    id: Annotated[int, Field(gt=0)]
    name: str
    status: str
    busy: bool

    def registered(self) -> RegisteredRunner:
        """The same in the port's words."""
        return RegisteredRunner(self.id, RunnerName(self.name), self.status == "online", self.busy)


class RunnerPage(Received):
    """A page of registrations."""

    runners: list[ListedRunner]


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
        """See `GitHubLists`. Archived ones run nothing and are left out."""
        target = target_of_scope(scope)
        if target.repository is not None:
            return Listing((ListedRepository(str(target)),))
        request = _question("/installation/repositories{?per_page}", {"per_page": 100})
        found: dict[str, ListedRepository] = {}
        calls = 0
        for caller in await self._candidates(target):
            # Each App's installation may have been given other repositories.
            read = await self._pages.read(request, caller, _RepositoryPage)
            calls += read.calls
            for page in read.pages:
                for one in page.repositories:
                    if not one.archived:
                        pushed_at = _instant(request, one.pushed_at)
                        found[one.full_name] = ListedRepository(one.full_name, pushed_at)
        return Listing(tuple(found.values()), calls)

    async def newest_runs(self, repository: str) -> Listing[ListedRun]:
        """See `GitHubLists`."""
        target = target_of_repository(repository)
        request = _question(
            f"{target.route}/actions/runs{{?per_page}}", {**target.variables, "per_page": 100}
        )
        read = await self._read(target, request, _RunPage, most=1)
        return Listing(tuple(_runs(read)), read.calls)

    async def runs(self, repository: str, status: str) -> Listing[ListedRun]:
        """See `GitHubLists`."""
        target = target_of_repository(repository)
        request = _question(
            f"{target.route}/actions/runs{{?status,per_page}}",
            {**target.variables, "status": status, "per_page": 100},
        )
        read = await self._read(target, request, _RunPage)
        return Listing(tuple(_runs(read)), read.calls)

    async def run(self, repository: str, run_id: int) -> Listing[ListedRun]:
        """See `GitHubLists`."""
        target = target_of_repository(repository)
        request = _question(
            f"{target.route}/actions/runs/{{run_id}}", {**target.variables, "run_id": run_id}
        )
        try:
            read = await self._read(target, request, _Run)
        except NotShownError:
            return Listing((), 1)
        return Listing(tuple(map(_listed, read.pages)), read.calls)

    async def jobs(self, repository: str, run_id: int, now: Instant) -> Listing[JobObserved]:
        """See `GitHubLists`. A job that is not understood is left out."""
        target = target_of_repository(repository)
        request = _question(
            f"{target.route}/actions/runs/{{run_id}}/jobs{{?filter,per_page}}",
            {**target.variables, "run_id": run_id, "filter": "latest", "per_page": 100},
        )
        try:
            read = await self._read(target, request, _JobPage)
        except NotShownError:
            return Listing((), 1)
        seen = Sighting(repository, now, read=True)
        listed = [job for page in read.pages for job in page.jobs]
        facts = tuple(_facts(listed, seen))
        if missed := len(listed) - len(facts):
            _log.warning("jobs_not_understood", repository=repository, run=run_id, jobs=missed)
        return Listing(facts, read.calls)

    async def runners(self, scope: str) -> Listing[RegisteredRunner]:
        """See `GitHubLists`."""
        target = target_of_scope(scope)
        request = _question(
            f"{target.route}/actions/runners{{?per_page}}", {**target.variables, "per_page": 100}
        )
        read = await self._read(target, request, RunnerPage)
        items = tuple(runner.registered() for page in read.pages for runner in page.runners)
        return Listing(items, read.calls)

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
        self, target: Target, request: Request, shape: type[Shape], most: int = MAX_PAGES
    ) -> Pages[Shape]:
        async def by(caller: Installation) -> Pages[Shape]:
            return await self._pages.read(request, caller, shape, most)

        return await self._sharing.carry(await self._candidates(target), target, request, by)


def _question(route: str, variables: dict[str, str | int]) -> Request:
    return Request("GET", route, variables, importance=Importance.SYNC, expected=frozenset({404}))


def _runs(read: Pages[_RunPage]) -> Iterator[ListedRun]:
    for page in read.pages:
        yield from map(_listed, page.workflow_runs)


def _listed(run: _Run) -> ListedRun:
    mark = f"{run.status} {run.run_attempt} {run.updated_at}"
    return ListedRun(run.id, run.status == "completed", mark)


def _facts(jobs: Iterable[WorkflowJob | None], seen: Sighting) -> Iterator[JobObserved]:
    for job in jobs:
        # GitHub may learn new words: one job's must not hide the others.
        state = JOB_STATES.get(job.status or "") if job is not None else None
        if job is not None and state is not None:
            with suppress(ValueError, OverflowError):  # a time that is none
                yield observe(job, state, seen)


def _instant(request: Request, text: str | None) -> Instant | None:
    try:
        return instant_of(text)
    except (ValueError, OverflowError):
        raise unanswered(request, "a time that is none") from None
