"""GitHub's lists: repositories, runs, a run's jobs, runners, ends of runner versions.

Reading lists changes nothing at GitHub and has the lowest priority of all requests.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, Protocol, TypeVar

from autoscaler.controller.ports.github import RegisteredRunner
from autoscaler.model.events import JobObserved
from autoscaler.model.identifiers import Instant
from autoscaler.model.jobs.job import RunOrigin

MOST_REPOSITORIES = 5_000
"""Maximum number of watched repositories of a scope. Those with the latest activity are watched."""

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class ListedRepository:
    """A repository that an App can access. `pushed_at` is the last push, if GitHub returns it.

    Only the list of the newest repositories sets `created_at`.
    """

    name: str
    pushed_at: Instant | None = None
    created_at: Instant | None = None


class RunStatus(NamedTuple):
    """Whether a run is completed, and where it comes from.

    `origin` is None if GitHub does not return all of it. All runs share few such values.
    """

    completed: bool
    origin: RunOrigin | None = None


@dataclass(frozen=True, slots=True)
class ListedRun:
    """A workflow run. `mark` differs whenever GitHub shows the run as changed.

    A completed run changes when it is re-run. There may be hundreds of thousands of runs.
    """

    id: int
    status: RunStatus
    mark: str

    @property
    def completed(self) -> bool:
        """True if the run is completed."""
        return self.status.completed

    @property
    def origin(self) -> RunOrigin | None:
        """Where the run comes from, None if that is unknown."""
        return self.status.origin


@dataclass(frozen=True, slots=True)
class Listing(Generic[Item]):
    """A list, and how many of its answers counted against GitHub's hourly limit (a 304 does not count).

    `whole` is False only for a list of repositories, if an App could not be asked or there are too many.
    """

    items: Sequence[Item] = field(default=())
    calls: int = 0
    whole: bool = True


class GitHubLists(Protocol):
    """Every list raises RetryLaterError and OperatorError, and nothing else."""

    async def repositories(self, scope: str) -> Listing[ListedRepository]:
        """Return the repositories that the Apps on a scope's account can access, within the scope."""

    async def newest_repositories(self, scope: str) -> Listing[ListedRepository]:
        """Return the newest 30 repositories of an organization's scope, in one call."""

    async def newest_runs(self, repository: str) -> Listing[ListedRun]:
        """Return the newest 100 runs of a repository, in any state."""

    async def runs(self, repository: str, status: str) -> Listing[ListedRun]:
        """Return all runs of a repository in one of GitHub's states, such as `queued`."""

    async def run(self, repository: str, run_id: int) -> Listing[ListedRun]:
        """Return one run; an empty list for 404."""

    async def jobs(self, repository: str, run_id: int, now: Instant) -> Listing[JobObserved]:
        """Return the jobs of a run's last attempt, as events with `read` set; an empty list for 404."""

    async def runners(self, scope: str) -> Listing[RegisteredRunner]:
        """Return every registration in a scope, including those of others."""

    async def runner_version_end(self, scope: str, version: str) -> Instant | None:
        """Return when GitHub stops giving jobs to a version of actions/runner; None if that is not decided.

        A 404 raises: GitHub does not know the version, or an Enterprise Server lacks the route.
        """

    def pace(self, scope: str) -> float:
        """Return how many list requests a second a scope's account can send until its hour is over.

        Excludes what is reserved for registering, reading and deleting runners. 0.0 during a rate limit.
        """
