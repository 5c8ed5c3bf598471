"""GitHub's re-runs: possible only when a run is complete, and once for each attempt."""

import asyncio
from collections.abc import Sequence

from autoscaler.controller.ports.github import (
    OperatorError,
    RerunAnswer,
    RerunUnknownError,
    RetryLaterError,
)
from autoscaler.model.identifiers import JobId, Seconds
from autoscaler.model.jobs.job import JobState
from autoscaler.model.machines.interruptions import RerunOutcome
from autoscaler.simulator.world.fault_schedule import FaultSchedule
from autoscaler.simulator.world.github.actions import Actions
from autoscaler.simulator.world.invariants import Invariants
from autoscaler.simulator.world.processes import count_call, send
from autoscaler.simulator.world.schedule import FaultKind

LATENCY: Seconds = 0.4


class SimulatedReruns:
    """Implements the Reruns port. Each run has one job."""

    def __init__(
        self, actions: Actions, fault_schedule: FaultSchedule, invariants: Invariants
    ) -> None:
        self._actions = actions
        self._fault_schedule = fault_schedule
        self._invariants = invariants

    async def rerun(
        self, repository: str, run_id: int, run_attempt: int, jobs: Sequence[JobId]
    ) -> RerunAnswer:
        """Re-run a run whose last attempt is `run_attempt`."""
        fault_schedule = self._fault_schedule
        await count_call()
        await asyncio.sleep(LATENCY)
        if fault_schedule.hit(FaultKind.GITHUB_5XX):
            raise RetryLaterError("502 Bad Gateway", 1.0)
        if fault_schedule.hit(FaultKind.RERUN_REFUSED):
            raise OperatorError("403 Resource not accessible by integration")
        answer = send(
            lambda: self._carry_out(repository, run_id, run_attempt, tuple(jobs)),
            lambda why: RetryLaterError(why, 1.0),
        )
        await count_call()
        if fault_schedule.hit(FaultKind.GITHUB_SWALLOWED):
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
        self._invariants.running_again(job)
        self._actions.run_again(job)
        return RerunAnswer(jobs, RerunOutcome.ACCEPTED)
