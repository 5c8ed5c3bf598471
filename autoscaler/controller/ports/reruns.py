"""GitHub as it is asked to run jobs again. Errors are those of `ports.github`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from autoscaler.model.identifiers import JobId
from autoscaler.model.interruptions import RerunOutcome


@dataclass(frozen=True, slots=True)
class RerunAnswer:
    """What GitHub did about `jobs`: an outcome, or None where it does not allow it yet."""

    jobs: tuple[JobId, ...]
    outcome: RerunOutcome | None
    detail: str = ""


class Reruns(Protocol):
    """Runs jobs again, each method once."""

    async def rerun(
        self, repository: str, run_id: int, run_attempt: int, jobs: Sequence[JobId]
    ) -> RerunAnswer:
        """Try these failed jobs of a run again, whose last attempt is `run_attempt`.

        Where the run has other failed jobs too, one of ours is tried and answered for; the others
        are to be asked for later. ACCEPTED, SUPERSEDED (there is a later attempt), REFUSED, or
        None. Raises RetryLaterError (it may have been done), OperatorError.
        """
