"""GitHub as it is asked to run jobs again. Errors are those of `ports.github`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from autoscaler.controller.ports.github import RetryLaterError
from autoscaler.model.identifiers import JobId, Seconds
from autoscaler.model.interruptions import RerunOutcome


@dataclass(frozen=True, slots=True)
class RerunAnswer:
    """What GitHub did about `jobs`: an outcome, or None where it does not allow it yet.

    `apart`: nothing was asked for, since others failed too: each is to be asked for by itself.
    """

    jobs: tuple[JobId, ...]
    outcome: RerunOutcome | None
    detail: str = ""
    apart: bool = False


class RerunUnknownError(RetryLaterError):
    """GitHub may have run `jobs` again: no answer tells."""

    def __init__(self, message: str, retry_after: Seconds, jobs: tuple[JobId, ...]) -> None:
        super().__init__(message, retry_after)
        self.jobs = jobs


class Reruns(Protocol):
    """Runs jobs again, each method once."""

    async def rerun(
        self, repository: str, run_id: int, run_attempt: int, jobs: Sequence[JobId]
    ) -> RerunAnswer:
        """Try these failed jobs of a run again, whose last attempt is `run_attempt`.

        All of them or none: where an answer is lost, what was asked for is what it was for.
        ACCEPTED, SUPERSEDED (there is a later attempt), REFUSED, or None. Raises RerunUnknownError;
        RetryLaterError and OperatorError (a run that is not shown, too) where nothing was done.
        """
