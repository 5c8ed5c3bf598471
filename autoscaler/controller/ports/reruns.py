"""The port through which GitHub re-runs jobs. Errors are those of `ports.github`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from autoscaler.controller.ports.github import RetryLaterError
from autoscaler.model.identifiers import JobId, Seconds
from autoscaler.model.machines.interruptions import RerunOutcome


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
