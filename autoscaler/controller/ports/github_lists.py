"""GitHub's lists as the controller reads them: repositories, runs, a run's jobs, runners.

Reading them changes nothing at GitHub and comes after everything else that is asked there.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, Protocol, TypeVar

from autoscaler.controller.ports.github import RegisteredRunner
from autoscaler.model.events import JobObserved
from autoscaler.model.identifiers import Instant

MOST_REPOSITORIES = 5_000
"""Of an account: those whose runs are read, again and again, the liveliest first."""

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class ListedRepository:
    """A repository that an App may see. `pushed_at` is the last push, where GitHub tells it.

    `created_at` is told by the list of the newest ones alone.
    """

    name: str
    pushed_at: Instant | None = None
    created_at: Instant | None = None


class RunStatus(NamedTuple):
    """Whether a run is over, and whether its head repository is another than its own.

    `from_fork` is None where GitHub does not name the two. Few values, shared by all runs.
    """

    completed: bool
    from_fork: bool | None = None


@dataclass(frozen=True, slots=True)
class ListedRun:
    """A workflow run. `mark` is another text whenever GitHub shows the run as changed.

    Of one that is over that is when it is run again. Kept by the hundred thousand.
    """

    id: int
    status: RunStatus
    mark: str

    @property
    def completed(self) -> bool:
        """Whether it is over."""
        return self.status.completed

    @property
    def from_fork(self) -> bool | None:
        """Whether its head repository is another than its own, where that is known."""
        return self.status.from_fork


@dataclass(frozen=True, slots=True)
class Listing(Generic[Item]):
    """A list, and how many answers of it counted against GitHub's hourly limit.

    An answer that nothing has changed since the last one (304) does not count. Only a list of
    repositories may be less than `whole`: an App could not be asked, or there are too many.
    """

    items: Sequence[Item] = field(default=())
    calls: int = 0
    whole: bool = True


class GitHubLists(Protocol):
    """Every list raises RetryLaterError and OperatorError, and nothing else."""

    async def repositories(self, scope: str) -> Listing[ListedRepository]:
        """What the Apps on a scope's account may see; of a repository's scope, that one."""

    async def newest_repositories(self, scope: str) -> Listing[ListedRepository]:
        """The newest 30 repositories of an organization's scope, in one call."""

    async def newest_runs(self, repository: str) -> Listing[ListedRun]:
        """The newest 100 runs of a repository, whatever their state."""

    async def runs(self, repository: str, status: str) -> Listing[ListedRun]:
        """All runs of a repository in one of GitHub's states, such as `queued`."""

    async def run(self, repository: str, run_id: int) -> Listing[ListedRun]:
        """One run; an empty list for 404."""

    async def jobs(self, repository: str, run_id: int, now: Instant) -> Listing[JobObserved]:
        """The jobs of a run's last attempt, as facts with `read` set; an empty list for 404."""

    async def runners(self, scope: str) -> Listing[RegisteredRunner]:
        """Every registration in a scope, other people's included."""

    def pace(self, scope: str) -> float:
        """Questions a second that a scope's account has to spare for lists until its hour is over.

        What is kept back for registering, checking and removing runners is not in it. 0.0 while a
        limit holds.
        """
