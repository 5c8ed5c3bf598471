"""GitHub as the controller uses it: runners and jobs. Scopes are `Scope.key` strings."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from autoscaler.controller.ports.unlisted_errors import raises_only
from autoscaler.model.cooldowns import RateLimit
from autoscaler.model.events import JobObserved
from autoscaler.model.identifiers import Instant, JobId, RunnerName, Seconds
from autoscaler.model.jobs.job import RunOrigin
from autoscaler.model.jobs.runner_group_excess import RunnerGroup
from autoscaler.model.machines.interruptions import RerunOutcome


class GitHubError(Exception):
    """GitHub did not carry out a request. The subclass says what to do next."""


class RetryLaterError(GitHubError):
    """A rate limit (`limit`), an outage or an invalid answer: retry after `retry_after` seconds."""

    def __init__(self, message: str, retry_after: Seconds, limit: RateLimit | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.limit = limit


class RegistrationOutcomeUnknownError(GitHubError):
    """A registration may or may not exist: look it up by its name before anything else."""


class RunnerExistsError(GitHubError):
    """409: a registration with this name exists already."""


class RunnerBusyError(GitHubError):
    """422: the runner is running a job and was not deleted."""


class OperatorError(GitHubError):
    """401, 403 without a rate limit, or 404 on a scope: an operator must change something first."""


RETRY_UNLISTED: Seconds = 60.0
"""Pause after an error that is none of these."""

github_errors = raises_only(
    (GitHubError,),
    lambda text: RetryLaterError(text, RETRY_UNLISTED),
    register=RegistrationOutcomeUnknownError,
)
"""Decorates the classes that implement `GitHub`, `GitHubLists` and `Reruns`."""


@dataclass(frozen=True, slots=True)
class NewRegistration:
    """A new registration. `jit_config` is a secret: it is never logged, stored or put in an event."""

    github_id: int
    jit_config: str

    def __repr__(self) -> str:
        """Return a representation without the secret."""
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
    """How many redeliveries were requested, and until when every delivery has arrived.

    Deliveries that failed or have no outcome yet are later than `arrived_until`. A new process has to
    check deliveries from there on.
    """

    asked: int
    arrived_until: Instant


class GitHub(Protocol):
    """GitHub's REST API. Methods raise the errors that they name, and no others."""

    async def register(
        self, scope: str, runner_group: str, name: RunnerName, labels: tuple[str, ...]
    ) -> NewRegistration:
        """Register a JIT runner. Sends the request once and never retries it.

        Raises RunnerExistsError, RegistrationOutcomeUnknownError, RetryLaterError, OperatorError.
        """

    async def find_runner(self, scope: str, name: RunnerName) -> RegisteredRunner | None:
        """Return the registration with this exact name, or None. Raises RetryLaterError, OperatorError."""

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
        """Read a job. Return it as an event with `read` set, or None for a 404.

        Raises RetryLaterError, OperatorError.
        """

    async def run_origin(self, repository: str, run_id: int) -> RunOrigin | None:
        """Return where a run comes from.

        Return None for 404, and if GitHub does not return all of it. Raises RetryLaterError, OperatorError.
        """

    async def runner_group(self, scope: str, name: str) -> RunnerGroup:
        """Return an organization's runner group by its name, as it is now.

        Raises RetryLaterError, OperatorError (also where there is no such group).
        """

    async def redeliver_failed(self, since: Instant) -> Redelivered:
        """Request redelivery of the App's failed webhook deliveries since then.

        `since` may be the `arrived_until` of an earlier call; deliveries that GitHub lists late are
        allowed for. A delivery whose latest attempt succeeded is not repeated.
        Logs each App's error. Raises: RetryLaterError, OperatorError.
        """

    async def close(self) -> None:
        """Close the connections. Idempotent."""


@dataclass(frozen=True, slots=True)
class RerunAnswer:
    """The outcome of a request to re-run `jobs`, or None if GitHub does not allow it yet.

    `apart`: nothing was requested, because other jobs of the run failed, too. Each job needs a request of its
    own.
    """

    jobs: tuple[JobId, ...]
    outcome: RerunOutcome | None
    detail: str = ""
    apart: bool = False


class RerunUnknownError(RetryLaterError):
    """GitHub may have re-run `jobs`: its answer is lost."""

    def __init__(self, message: str, retry_after: Seconds, jobs: tuple[JobId, ...]) -> None:
        super().__init__(message, retry_after)
        self.jobs = jobs


class Reruns(Protocol):
    """Requests re-runs. Sends each request once."""

    async def rerun(
        self, repository: str, run_id: int, run_attempt: int, jobs: Sequence[JobId]
    ) -> RerunAnswer:
        """Re-run these failed jobs of a run, all or none. `run_attempt` is its last known attempt.

        The outcome is ACCEPTED, SUPERSEDED (the run has a later attempt), REFUSED, or None (not yet). Raises
        RerunUnknownError; RetryLaterError and OperatorError (also if GitHub does not show the run) if nothing
        was re-run.
        """
