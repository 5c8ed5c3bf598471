"""GitHub as the controller uses it: runners and jobs. Scopes are `Scope.key` strings."""

from dataclasses import dataclass
from typing import Protocol

from autoscaler.model.access import RunnerGroup
from autoscaler.model.events import JobObserved
from autoscaler.model.identifiers import Instant, JobId, RunnerName, Seconds


class GitHubError(Exception):
    """GitHub did not do what was asked; the subclass says what to do next."""


class RetryLaterError(GitHubError):
    """A limit, an outage or a broken answer to a question: ask again after `retry_after` seconds."""

    def __init__(self, message: str, retry_after: Seconds) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class RegistrationOutcomeUnknownError(GitHubError):
    """A registration may or may not have been made: look the name up before anything else."""


class RunnerExistsError(GitHubError):
    """409: a registration of this name is there already."""


class RunnerBusyError(GitHubError):
    """422: the runner is running a job and was not deleted."""


class OperatorError(GitHubError):
    """401, 403 without a limit, 404 on a scope: somebody must change something first."""


@dataclass(frozen=True, slots=True)
class NewRegistration:
    """A fresh registration. `jit_config` is a secret: never logged, stored or put in an event."""

    github_id: int
    jit_config: str

    def __repr__(self) -> str:
        """Without the secret."""
        return f"NewRegistration(github_id={self.github_id})"


@dataclass(frozen=True, slots=True)
class RegisteredRunner:
    """A registration as GitHub lists it."""

    github_id: int
    name: RunnerName
    online: bool
    busy: bool


@dataclass(frozen=True, slots=True)
class Redelivered:
    """How many repeats were asked for, and until when every delivery has arrived.

    What failed, or has no outcome yet, lies after `arrived_until`: a process that starts anew
    has to look back to there, whatever this one still knows.
    """

    asked: int
    arrived_until: Instant


class GitHub(Protocol):
    """Raises only what the methods name, and GitHubError's subclasses."""

    async def register(
        self, scope: str, runner_group: str, name: RunnerName, labels: tuple[str, ...]
    ) -> NewRegistration:
        """Register a JIT runner, once; never repeated by itself.

        Raises RunnerExistsError, RegistrationOutcomeUnknownError, RetryLaterError, OperatorError.
        """

    async def find_runner(self, scope: str, name: RunnerName) -> RegisteredRunner | None:
        """Look a registration up by its exact name. Raises RetryLaterError, OperatorError."""

    async def read_runner(self, scope: str, github_id: int) -> RegisteredRunner | None:
        """Return the registration with this id, or None for a 404.

        GitHub also answers 404 to an App that may not see the scope's runners. Such a 404 raises.
        Raises RetryLaterError, OperatorError.
        """

    async def delete_runner(self, scope: str, github_id: int) -> bool:
        """Delete a registration: True for 204, False for 404 (not there).

        Raises RunnerBusyError on 422, RetryLaterError, OperatorError.
        """

    async def read_job(self, repository: str, job: JobId, now: Instant) -> JobObserved | None:
        """GitHub's own answer about a job, as a fact with `read` set; None for 404.

        Raises RetryLaterError, OperatorError.
        """

    async def run_from_fork(self, repository: str, run_id: int) -> bool | None:
        """Return whether a run's head repository is another than the run's own.

        None for 404, and where GitHub does not name them. Raises RetryLaterError, OperatorError.
        """

    async def runner_group(self, scope: str, name: str) -> RunnerGroup:
        """Return an organization's runner group by its name, as it is now.

        Raises RetryLaterError, OperatorError (also where there is no such group).
        """

    async def redeliver_failed(self, since: Instant) -> Redelivered:
        """Have GitHub repeat the App's failed webhook deliveries since then.

        `since` may be the `arrived_until` of an earlier call as it is: what GitHub lists late is
        looked for here. A delivery whose latest try succeeded is not repeated. Raises
        RetryLaterError, OperatorError.
        """

    async def close(self) -> None:
        """Release connections. Idempotent."""
