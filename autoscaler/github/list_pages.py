"""The pages of GitHub's lists: their shape, and what they say in the port's words."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Annotated

import structlog
from pydantic import (
    AfterValidator,
    Field,
    RootModel,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from autoscaler.controller.ports.github import RegisteredRunner
from autoscaler.controller.ports.github_lists import ListedRepository
from autoscaler.github.jobs import (
    JOB_STATES,
    RepositoryName,
    Sighting,
    WorkflowJob,
    observe,
)
from autoscaler.github.known_pages import JOB, Form
from autoscaler.github.received import Received
from autoscaler.github.runs import WorkflowRun
from autoscaler.github.timestamps import instant_of
from autoscaler.model.events import JobObserved
from autoscaler.model.identifiers import RunnerName

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
    """A page of an organization's repositories: a list without a name."""


class _RunPage(Received):
    workflow_runs: list[WorkflowRun]


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


REPOSITORIES = Form(
    _RepositoryPage,
    lambda page: tuple(
        ListedRepository(one.full_name, instant_of(one.pushed_at))
        for one in page.repositories
        if not one.archived
    ),
)
NEWEST = Form(
    _NewRepositories,
    lambda page: tuple(
        ListedRepository(one.full_name, instant_of(one.pushed_at), instant_of(one.created_at))
        for one in page.root
        if not one.archived
    ),
)
RUNS = Form(_RunPage, lambda page: tuple(run.listed() for run in page.workflow_runs))
RUN = Form(WorkflowRun, lambda run: (run.listed(),))
RUNNERS = Form(RunnerPage, lambda page: tuple(one.registered() for one in page.runners))


def jobs_form(seen: Sighting, run_id: int) -> Form[_JobPage, JobObserved]:
    """Return the form of a page of a run's jobs. A job that is not understood is left out."""
    return Form(_JobPage, lambda page: _facts(page, seen, run_id), JOB)


def _facts(page: _JobPage, seen: Sighting, run_id: int) -> tuple[JobObserved, ...]:
    found = tuple(_understood(page.jobs, seen))
    if missed := len(page.jobs) - len(found):
        _log.warning("jobs_not_understood", repository=seen.repository, run=run_id, jobs=missed)
    return found


def _understood(jobs: Iterable[WorkflowJob | None], seen: Sighting) -> Iterator[JobObserved]:
    for job in jobs:
        # GitHub may learn new words: one job's must not hide the others.
        state = JOB_STATES.get(job.status or "") if job is not None else None
        if job is not None and state is not None:
            with suppress(ValueError, OverflowError):  # a time that is none
                yield observe(job, state, seen)
