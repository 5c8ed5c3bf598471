"""GitHub as it is asked to run jobs again: not before the run is complete, and once an attempt.

It decides what is answered, never which job ought to be run again.
"""

import asyncio
from collections.abc import Sequence

from autoscaler.controller.ports.github import OperatorError, RetryLaterError
from autoscaler.controller.ports.reruns import RerunAnswer, RerunUnknownError
from autoscaler.model.identifiers import JobId, Seconds
from autoscaler.model.interruptions import RerunOutcome
from autoscaler.model.jobs import JobState
from autoscaler.simulator.world.actions import Actions
from autoscaler.simulator.world.fuse import Fuse
from autoscaler.simulator.world.schedule import FaultKind
from autoscaler.simulator.world.weather import Weather
from autoscaler.simulator.world.witness import Witness

LATENCY: Seconds = 0.4


class SimulatedReruns:
    """Implements the Reruns port for one process after another. A run has one job here."""

    def __init__(self, actions: Actions, weather: Weather, witness: Witness) -> None:
        self.fuse = Fuse()
        self._actions = actions
        self._weather = weather
        self._witness = witness

    async def rerun(
        self, repository: str, run_id: int, run_attempt: int, jobs: Sequence[JobId]
    ) -> RerunAnswer:
        """Try a run again whose last attempt is that one."""
        fuse, weather = self.fuse, self._weather
        await fuse.burn()
        await asyncio.sleep(LATENCY)
        if weather.strikes(FaultKind.GITHUB_5XX):
            raise RetryLaterError("502 Bad Gateway", 1.0)
        if weather.strikes(FaultKind.RERUN_REFUSED):
            raise OperatorError("403 Resource not accessible by integration")
        answer = self._carry_out(repository, run_id, run_attempt, tuple(jobs))
        await fuse.burn()
        if weather.strikes(FaultKind.GITHUB_SWALLOWED):
            raise RerunUnknownError("502 Bad Gateway", 1.0, tuple(jobs))
        return answer

    def _carry_out(
        self, repository: str, run_id: int, attempt: int, jobs: tuple[JobId, ...]
    ) -> RerunAnswer:
        job = self._actions.latest.get(run_id)
        if job is None or repository != job.arrival.repository:
            return RerunAnswer(jobs, RerunOutcome.REFUSED, "404")
        if job.attempt > attempt:
            return RerunAnswer(jobs, RerunOutcome.SUPERSEDED, f"at attempt {job.attempt}")
        if job.state is not JobState.COMPLETED:
            return RerunAnswer(jobs, None, "not complete")
        self._witness.running_again(job)
        self._actions.run_again(job)
        return RerunAnswer(jobs, RerunOutcome.ACCEPTED)
