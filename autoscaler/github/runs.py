"""A workflow run as GitHub writes it: whether it is over, has changed, and comes from a fork.

Fields: docs.github.com, REST "Workflow runs"; `repository` and `head_repository` are in every answer,
the list's too, and `head_repository` is null where the fork was deleted since.
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
    """The fields of a run that matter here; all but the id may be missing."""

    id: Annotated[int, Field(gt=0, lt=2**63)]
    status: Annotated[str, Field(max_length=MAX_TEXT)] | None = None
    run_attempt: int | None = None
    updated_at: Annotated[str, Field(max_length=40)] | None = None
    repository: _Repository | None = None
    head_repository: _Repository | None = None

    @property
    def from_fork(self) -> bool | None:
        """Whether its commit is of another repository; None where the answer does not name them."""
        if self.repository is None or "head_repository" not in self.model_fields_set:
            return None
        return self.head_repository is None or self.head_repository.id != self.repository.id

    def listed(self) -> ListedRun:
        """The same in the port's words."""
        completed = self.status == "completed"
        mark = f"{self.status} {self.run_attempt}"
        # Nearly all that are kept are over: those share their marks, which are most of what a run takes.
        mark = intern(mark) if completed else f"{mark} {self.updated_at}"
        return ListedRun(self.id, _STATUSES[completed, self.from_fork], mark)
