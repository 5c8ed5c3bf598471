"""Reads workflow runs: whether a run is completed, has changed, and where it comes from.

Fields: docs.github.com, REST "Workflow runs". Every answer, also a list, has `event`, `head_branch`,
`repository` (with `private`) and `head_repository`; `head_repository` is null if the fork was deleted, and
`head_branch` may be null. A run does not show whether `head_branch` is a tag.
"""

from functools import lru_cache
from sys import intern
from typing import Annotated

from pydantic import Field

from autoscaler.controller.ports.github_lists import ListedRun, RunStatus
from autoscaler.github.jobs import MAX_TEXT
from autoscaler.github.requests.received import Received
from autoscaler.model.jobs.access_rules import branch_of_run
from autoscaler.model.jobs.job import RunOrigin

MAX_BRANCH = 1024
"""Characters. A run of a branch with a longer name counts as on no branch: one name must not cost a list."""


@lru_cache(maxsize=10_000)
def _status(completed: bool, origin: RunOrigin | None) -> RunStatus:
    """Return one object for equal values, because there may be hundreds of thousands of runs."""
    return RunStatus(completed, origin)


class _Repository(Received):
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
    repository: _Repository | None = None
    head_repository: _Repository | None = None

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
