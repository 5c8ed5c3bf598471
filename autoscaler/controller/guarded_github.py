"""Guards for GitHub's ports: raise an error that the port does not list as `RetryLaterError`."""

from collections.abc import Sequence

from autoscaler.controller.guards import guard
from autoscaler.controller.ports.github import (
    GitHub,
    GitHubError,
    NewRegistration,
    Redelivered,
    RegisteredRunner,
    RegistrationOutcomeUnknownError,
    RetryLaterError,
)
from autoscaler.controller.ports.github_lists import (
    GitHubLists,
    ListedRepository,
    ListedRun,
    Listing,
)
from autoscaler.controller.ports.reruns import RerunAnswer, Reruns
from autoscaler.model.events import JobObserved
from autoscaler.model.identifiers import (
    Instant,
    JobId,
    RunnerName,
    Seconds,
)
from autoscaler.model.jobs.access import RunnerGroup
from autoscaler.model.run_origins import RunOrigin

RETRY_AFTER: Seconds = 60.0


class GuardedGitHub:
    """A `GitHub` that raises only the errors that the port lists."""

    def __init__(self, github: GitHub) -> None:
        self._github = github

    async def register(
        self, scope: str, runner_group: str, name: RunnerName, labels: tuple[str, ...]
    ) -> NewRegistration:
        """See `GitHub`."""
        return await guard(
            lambda: self._github.register(scope, runner_group, name, labels),
            GitHubError,
            RegistrationOutcomeUnknownError,
        )

    async def find_runner(self, scope: str, name: RunnerName) -> RegisteredRunner | None:
        """See `GitHub`."""
        return await guard(lambda: self._github.find_runner(scope, name), GitHubError, _later)

    async def read_runner(self, scope: str, github_id: int) -> RegisteredRunner | None:
        """See `GitHub`."""
        return await guard(lambda: self._github.read_runner(scope, github_id), GitHubError, _later)

    async def delete_runner(self, scope: str, github_id: int) -> bool:
        """See `GitHub`."""
        return await guard(
            lambda: self._github.delete_runner(scope, github_id), GitHubError, _later
        )

    async def read_job(self, repository: str, job: JobId, now: Instant) -> JobObserved | None:
        """See `GitHub`."""
        return await guard(lambda: self._github.read_job(repository, job, now), GitHubError, _later)

    async def run_origin(self, repository: str, run_id: int) -> RunOrigin | None:
        """See `GitHub`."""
        return await guard(lambda: self._github.run_origin(repository, run_id), GitHubError, _later)

    async def runner_group(self, scope: str, name: str) -> RunnerGroup:
        """See `GitHub`."""
        return await guard(lambda: self._github.runner_group(scope, name), GitHubError, _later)

    async def redeliver_failed(self, since: Instant) -> Redelivered:
        """See `GitHub`."""
        return await guard(lambda: self._github.redeliver_failed(since), GitHubError, _later)

    async def close(self) -> None:
        """See `GitHub`."""
        await self._github.close()


class GuardedGitHubLists:
    """A `GitHubLists` that raises only the errors that the port lists."""

    def __init__(self, lists: GitHubLists) -> None:
        self._lists = lists

    async def repositories(self, scope: str) -> Listing[ListedRepository]:
        """See `GitHubLists`."""
        return await guard(lambda: self._lists.repositories(scope), GitHubError, _later)

    async def newest_repositories(self, scope: str) -> Listing[ListedRepository]:
        """See `GitHubLists`."""
        return await guard(lambda: self._lists.newest_repositories(scope), GitHubError, _later)

    async def newest_runs(self, repository: str) -> Listing[ListedRun]:
        """See `GitHubLists`."""
        return await guard(lambda: self._lists.newest_runs(repository), GitHubError, _later)

    async def runs(self, repository: str, status: str) -> Listing[ListedRun]:
        """See `GitHubLists`."""
        return await guard(lambda: self._lists.runs(repository, status), GitHubError, _later)

    async def run(self, repository: str, run_id: int) -> Listing[ListedRun]:
        """See `GitHubLists`."""
        return await guard(lambda: self._lists.run(repository, run_id), GitHubError, _later)

    async def jobs(self, repository: str, run_id: int, now: Instant) -> Listing[JobObserved]:
        """See `GitHubLists`."""
        return await guard(lambda: self._lists.jobs(repository, run_id, now), GitHubError, _later)

    async def runners(self, scope: str) -> Listing[RegisteredRunner]:
        """See `GitHubLists`."""
        return await guard(lambda: self._lists.runners(scope), GitHubError, _later)

    async def runner_version_end(self, scope: str, version: str) -> Instant | None:
        """See `GitHubLists`."""
        return await guard(
            lambda: self._lists.runner_version_end(scope, version), GitHubError, _later
        )

    def pace(self, scope: str) -> float:
        """See `GitHubLists`."""
        return self._lists.pace(scope)


class GuardedReruns:
    """A `Reruns` that raises only the errors that the port lists."""

    def __init__(self, reruns: Reruns) -> None:
        self._reruns = reruns

    async def rerun(
        self, repository: str, run_id: int, run_attempt: int, jobs: Sequence[JobId]
    ) -> RerunAnswer:
        """See `Reruns`."""
        return await guard(
            lambda: self._reruns.rerun(repository, run_id, run_attempt, jobs), GitHubError, _later
        )


def _later(message: str) -> RetryLaterError:
    return RetryLaterError(message, RETRY_AFTER)
