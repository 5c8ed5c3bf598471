"""Reads workflow runs: whether a run is completed, has changed, and comes from a fork.

Fields: docs.github.com, REST "Workflow runs". Every answer, also a list, has `repository` and
`head_repository`; `head_repository` is null if the fork was deleted.
"""

from sys import intern
from typing import Annotated

from pydantic import Field

from autoscaler.controller.ports.github_lists import ListedRun, RunStatus
from autoscaler.github.jobs import MAX_TEXT
from autoscaler.github.received import Received

_STATUSES = {
    (completed, from_fork): RunStatus(completed, from_fork)
    for completed in (True, False)
    for from_fork in (True, False, None)
}


class _Repository(Received):
    id: Annotated[int, Field(gt=0)]


class WorkflowRun(Received):
    """The fields of a run that are used; all but the id may be missing."""

    id: Annotated[int, Field(gt=0, lt=2**63)]
    status: Annotated[str, Field(max_length=MAX_TEXT)] | None = None
    run_attempt: int | None = None
    updated_at: Annotated[str, Field(max_length=40)] | None = None
    repository: _Repository | None = None
    head_repository: _Repository | None = None

    @property
    def from_fork(self) -> bool | None:
        """Whether its commit is from another repository; None if the answer lacks the repositories."""
        if self.repository is None or "head_repository" not in self.model_fields_set:
            return None
        return self.head_repository is None or self.head_repository.id != self.repository.id

    def listed(self) -> ListedRun:
        """Return it as the port's type."""
        completed = self.status == "completed"
        mark = f"{self.status} {self.run_attempt}"
        # Most cached runs are completed. They share their marks, which take most of a run's memory.
        mark = intern(mark) if completed else f"{mark} {self.updated_at}"
        return ListedRun(self.id, _STATUSES[completed, self.from_fork], mark)
