"""Has GitHub run jobs again that died with their machines, as soon as it allows it.

Which jobs those are, how often a run may be tried and when to ask again is the ledger's to say.
A request is recorded before it is sent: after a crash the run's attempt tells what became of it.
"""

import structlog

from autoscaler.controller.journal import Journal
from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.github import GitHubError
from autoscaler.controller.ports.reruns import RerunAnswer, Reruns, RerunUnknownError
from autoscaler.ledger.interruptions import due_reruns
from autoscaler.model.events import RerunAnswered, RerunRequested
from autoscaler.model.identifiers import Seconds
from autoscaler.model.interruptions import Rerun

LOOK_EVERY: Seconds = 5.0

_log = structlog.get_logger(__name__)


class Rerunner:
    """One request at a time: a re-run is never urgent."""

    def __init__(self, journal: Journal, reruns: Reruns, clock: Clock) -> None:
        self._journal = journal
        self._reruns = reruns
        self._clock = clock

    async def run(self) -> None:
        """Until it is cancelled. Raises StoreError."""
        while True:
            await self.ask_for_due()
            await self._clock.sleep(LOOK_EVERY)

    async def ask_for_due(self) -> None:
        """Ask once for each run that is due now. Raises StoreError."""
        for group in due_reruns(self._journal.ledger.state, self._journal.now):
            await self._ask(group)

    async def _ask(self, group: tuple[Rerun, ...]) -> None:
        jobs, one = tuple(rerun.job for rerun in group), group[0]
        repository, run_id, attempt = one.repository, one.run_id, one.run_attempt
        await self._journal.record(RerunRequested(self._journal.now, jobs))
        try:
            answer = await self._reruns.rerun(repository, run_id, attempt, jobs)
        except GitHubError as error:
            # The permission may be missing, or GitHub says so of a run that is not complete.
            _log.warning("not_run_again", repository=repository, run=run_id, error=str(error))
            open_ones = error.jobs if isinstance(error, RerunUnknownError) else ()
            answered = tuple(job for job in jobs if job not in open_ones)
            answer = RerunAnswer(answered, None, str(error))
        if answer.jobs:
            fact = RerunAnswered(self._journal.now, answer.jobs, answer.outcome, answer.detail)
            await self._journal.record(fact)
        if answer.apart and len(group) > 1:
            await self._ask(group[:1])  # the others wait for the attempt that this makes
