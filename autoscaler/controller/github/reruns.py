"""Requests re-runs of jobs whose machines were lost, as soon as GitHub allows it.

The ledger decides which jobs to re-run, how often and when. A request is recorded before it is sent:
after a crash, the run's attempt number shows whether GitHub accepted it.
"""

import structlog

from autoscaler.controller.journal import Journal
from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.github import GitHubError, RerunAnswer, Reruns, RerunUnknownError
from autoscaler.ledger.machines.reruns import due_reruns
from autoscaler.model.events import RerunAnswered, RerunRequested
from autoscaler.model.identifiers import Seconds
from autoscaler.model.machines.interruptions import Rerun

LOOK_EVERY: Seconds = 5.0

_log = structlog.get_logger(__name__)


class Rerunner:
    """Sends one re-run request at a time, because a re-run is never urgent."""

    def __init__(self, journal: Journal, reruns: Reruns, clock: Clock) -> None:
        self._journal = journal
        self._reruns = reruns
        self._clock = clock

    async def run(self) -> None:
        """Request due re-runs until cancelled. Raises StoreError."""
        while True:
            await self.ask_for_due()
            await self._clock.sleep(LOOK_EVERY)

    async def ask_for_due(self) -> None:
        """Request the re-runs that are due now, once each. Raises StoreError."""
        for group in due_reruns(self._journal.ledger.state, self._journal.now):
            await self._ask(group)

    async def _ask(self, group: tuple[Rerun, ...]) -> None:
        jobs, one = tuple(rerun.job for rerun in group), group[0]
        repository, run_id, attempt = one.repository, one.run_id, one.run_attempt
        await self._journal.record(RerunRequested(self._journal.now, jobs))
        try:
            answer = await self._reruns.rerun(repository, run_id, attempt, jobs)
        except GitHubError as error:
            # The permission may be missing, or the run is not complete yet.
            _log.warning(
                "rerun_failed", jobs=jobs, repository=repository, run=run_id, error=str(error)
            )
            open_ones = error.jobs if isinstance(error, RerunUnknownError) else ()
            answered = tuple(job for job in jobs if job not in open_ones)
            answer = RerunAnswer(answered, None, str(error))
        if answer.jobs:
            fact = RerunAnswered(self._journal.now, answer.jobs, answer.outcome, answer.detail)
            await self._journal.record(fact)
        if answer.apart and len(group) > 1:
            await self._ask(
                group[:1]
            )  # the other jobs wait for the attempt that this request creates
