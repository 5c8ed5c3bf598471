"""The formats of the pages of GitHub's lists, and their conversion into the port's types.

Fields of runs: docs.github.com, REST "Workflow runs". Every answer, also a list, has `event`, `head_branch`,
`repository` (with `private`) and `head_repository`; `head_repository` is null if the fork was deleted, and
`head_branch` may be null. A run does not show whether `head_branch` is a tag.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from sys import intern
from typing import Annotated

import structlog
from pydantic import (
    AfterValidator,
    Field,
    RootModel,
)

from autoscaler.controller.ports.github import RegisteredRunner
from autoscaler.controller.ports.github_lists import ListedRepository, ListedRun, RunStatus
from autoscaler.github.jobs import (
    JOB_STATES,
    MAX_TEXT,
    RepositoryName,
    Source,
    observe,
    read_job,
)
from autoscaler.github.lists.page_cache import ITEM, JOB, PageFormat
from autoscaler.github.requests.received import Received, instant_of
from autoscaler.model.events import JobObserved
from autoscaler.model.identifiers import Instant, RunnerName
from autoscaler.model.jobs.access_rules import branch_of_run
from autoscaler.model.jobs.job import RunOrigin

MAX_BRANCH = 1024
"""Characters. A run of a branch with a longer name counts as on no branch: one name must not cost a list."""


@lru_cache(maxsize=10_000)
def _status(completed: bool, origin: RunOrigin | None) -> RunStatus:
    """Return one object for equal values, because there may be hundreds of thousands of runs."""
    return RunStatus(completed, origin)


class _RunRepository(Received):
    id: Annotated[int, Field(gt=0)]
    private: bool | None = None


class WorkflowRun(Received):
    """The fields of a run that are used; all but the id may be missing."""

    id: Annotated[int, Field(gt=0, lt=2**63)]
    status: Annotated[str, Field(max_length=MAX_TEXT)] | None = None
    event: Annotated[str, Field(max_length=MAX_TEXT)] | None = None
    head_branch: str | None = None
    run_attempt: int | None = None
    updated_at: Annotated[str, Field(max_length=40)] | None = None
    created_at: Annotated[str, Field(max_length=40)] | None = None
    repository: _RunRepository | None = None
    head_repository: _RunRepository | None = None

    @property
    def origin(self) -> RunOrigin | None:
        """Where it comes from; None if the answer lacks any of it."""
        repository = self.repository
        if repository is None or repository.private is None or self.event is None:
            return None
        if not {"head_repository", "head_branch"} <= self.model_fields_set:
            return None
        from_fork = self.head_repository is None or self.head_repository.id != repository.id
        name = self.head_branch if len(self.head_branch or "") <= MAX_BRANCH else None
        branch = branch_of_run(self.event, name, from_fork)
        return RunOrigin(from_fork, not repository.private, branch)

    def listed(self) -> ListedRun:
        """Return it as the port's type."""
        completed = self.status == "completed"
        mark = f"{self.status} {self.run_attempt}"
        # Most cached runs are completed. They share their marks, which take most of a run's memory.
        mark = intern(mark) if completed else f"{mark} {self.updated_at}"
        return ListedRun(self.id, _status(completed, self.origin), mark)


_log = structlog.get_logger(__name__)


def _time(text: str) -> str:
    instant_of(text)  # raises ValueError
    return text


class _Repository(Received):
    full_name: RepositoryName
    pushed_at: Annotated[str, Field(max_length=40), AfterValidator(_time)] | None = None
    archived: bool = False


class _RepositoryPage(Received):
    repositories: list[_Repository]


class _NewRepository(_Repository):
    created_at: Annotated[str, Field(max_length=40), AfterValidator(_time)] | None = None


class _NewRepositories(RootModel[list[_NewRepository]]):
    """A page of an organization's repositories: a plain JSON list."""


class _RunPage(Received):
    workflow_runs: list[WorkflowRun]


class _JobPage(Received):
    jobs: list[object]


class _Deprecation(Received):
    """The ends of a version of actions/runner. GitHub leaves out the second of its two documented times."""

    runner_version: str
    runtime_deprecates_at: Annotated[str, Field(max_length=40), AfterValidator(_time)] | None
    registration_deprecates_at: (
        Annotated[str, Field(max_length=40), AfterValidator(_time)] | None
    ) = None


class ListedRunner(Received):
    """A registered runner as GitHub lists it."""

    id: Annotated[int, Field(gt=0)]
    name: str
    status: str
    busy: bool

    def registered(self) -> RegisteredRunner:
        """Return it as the port's type."""
        return RegisteredRunner(self.id, RunnerName(self.name), self.status == "online", self.busy)


class RunnerPage(Received):
    """A page of registered runners."""

    runners: list[ListedRunner]


REPOSITORIES = PageFormat(
    _RepositoryPage,
    lambda page: tuple(
        ListedRepository(one.full_name, instant_of(one.pushed_at))
        for one in page.repositories
        if not one.archived
    ),
)
NEWEST = PageFormat(
    _NewRepositories,
    lambda page: tuple(
        ListedRepository(one.full_name, instant_of(one.pushed_at), instant_of(one.created_at))
        for one in page.root
        if not one.archived
    ),
)
RUNS = PageFormat(_RunPage, lambda page: tuple(run.listed() for run in page.workflow_runs))
RUNS_WITH_TIMES = PageFormat(
    _RunPage,
    lambda page: tuple((run.listed(), run.created_at) for run in page.workflow_runs),
    2 * ITEM,
)
RUN = PageFormat(WorkflowRun, lambda run: (run.listed(),))
DEPRECATION = PageFormat(_Deprecation, lambda one: tuple(_ends(one)))
RUNNERS = PageFormat(RunnerPage, lambda page: tuple(one.registered() for one in page.runners))


def oldest_time(times: Iterable[str | None]) -> str:
    """Return the earliest of GitHub's timestamps, as GitHub wrote it; an empty text if none is readable."""
    read: list[tuple[float, str]] = []
    for text in times:
        with suppress(ValueError, OverflowError):
            if (at := instant_of(text)) is not None:
                read.append((at, text or ""))
    return min(read, default=(0.0, ""))[1]


def jobs_format(source: Source, run_id: int) -> PageFormat[_JobPage, JobObserved]:
    """Return the format of a page of a run's jobs, which leaves out unreadable jobs."""
    return PageFormat(_JobPage, lambda page: _jobs(page, source, run_id), JOB)


def _jobs(page: _JobPage, source: Source, run_id: int) -> tuple[JobObserved, ...]:
    found = tuple(_observed(page.jobs, source))
    if unreadable := len(page.jobs) - len(found):
        _log.warning("jobs_unreadable", repository=source.repository, run=run_id, jobs=unreadable)
    return found


def _observed(jobs: Iterable[object], source: Source) -> Iterator[JobObserved]:
    for data in jobs:
        # GitHub may introduce new states. One job that cannot be read must not hide the other jobs.
        with suppress(ValueError):
            job = read_job(data)
            state = JOB_STATES.get(job.status or "")
            if state is not None:
                yield observe(job, state, source)


def _ends(one: _Deprecation) -> Iterator[Instant]:
    """Return the times at which GitHub refuses a version's runners, and its new registrations."""
    for text in (one.runtime_deprecates_at, one.registration_deprecates_at):
        if (at := instant_of(text)) is not None:
            yield at
