"""GitHub as the controller meets it: the port over `actions`, with outages, limits and lies.

It decides what is answered, never which job runs where.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from autoscaler.controller.ports.github import (
    GitHubError,
    NewRegistration,
    OperatorError,
    Redelivered,
    RegisteredRunner,
    RegistrationOutcomeUnknownError,
    RetryLaterError,
    RunnerBusyError,
    RunnerExistsError,
)
from autoscaler.model.access import RunnerGroup
from autoscaler.model.events import JobObserved
from autoscaler.model.identifiers import Instant, JobId, RunnerName, Seconds
from autoscaler.simulator.world.actions import Actions
from autoscaler.simulator.world.crash_point import CrashPoint
from autoscaler.simulator.world.fault_schedule import FaultSchedule
from autoscaler.simulator.world.invariants import Invariants
from autoscaler.simulator.world.jobs import Registration
from autoscaler.simulator.world.schedule import FaultKind
from autoscaler.simulator.world.webhooks import Webhooks

T = TypeVar("T")
LATENCY: Seconds = 0.2
SECONDARY_WAIT: Seconds = 60.0


class SimulatedGitHub:
    """Implements the GitHub port for one process after another; `crash_point` is the living one's."""

    def __init__(
        self,
        actions: Actions,
        webhooks: Webhooks,
        fault_schedule: FaultSchedule,
        invariants: Invariants,
        now: Callable[[], Instant],
    ) -> None:
        self.crash_point = CrashPoint()
        self._actions = actions
        self._webhooks = webhooks
        self._fault_schedule = fault_schedule
        self._invariants = invariants
        self._now = now

    async def register(
        self, scope: str, runner_group: str, name: RunnerName, labels: tuple[str, ...]
    ) -> NewRegistration:
        """Register a runner: it is offline until its machine listens."""
        del runner_group  # there is one here

        def carry_out() -> NewRegistration:
            if self._fault_schedule.strikes(FaultKind.REGISTRATION_REFUSED):
                raise OperatorError("403 Resource not accessible by integration")
            known = self._actions.registrations.get(name)
            if known is not None and known.deleted_at is None:
                raise RunnerExistsError(f"409 {name}")
            made = self._actions.register(scope, name, labels)
            return NewRegistration(made.id, secret_of(made))

        self._invariants.registering(name)
        return await self._answer(
            carry_out, RegistrationOutcomeUnknownError("the connection broke")
        )

    async def find_runner(self, scope: str, name: RunnerName) -> RegisteredRunner | None:
        """The runner as it is listed, which may be as it was."""

        def carry_out() -> RegisteredRunner | None:
            stale = self._fault_schedule.strikes(FaultKind.STALE_LIST)
            then = self._now() - (stale.target if stale is not None else 0.0)
            found = self._actions.registrations.get(name)
            hidden = self._fault_schedule.strikes(FaultKind.WRONG_ANSWERS) is not None
            if hidden or found is None or found.scope != scope or not found.listed_by(then):
                return None
            busy = found.busy_by(then)
            if busy and self._fault_schedule.strikes(FaultKind.LIST_SAYS_IDLE):
                busy = False
            return RegisteredRunner(found.id, name, found.online_by(then), busy)

        return await self._answer(carry_out, _later())

    async def read_runner(self, scope: str, github_id: int) -> RegisteredRunner | None:
        """The runner as it is now: what is asked for by its id is no list."""

        def carry_out() -> RegisteredRunner | None:
            found, now = self._by_id(scope, github_id), self._now()
            if found is None or not found.listed_by(now):
                return None
            return RegisteredRunner(found.id, found.name, found.online_by(now), found.busy_by(now))

        return await self._answer(carry_out, _later())

    async def delete_runner(self, scope: str, github_id: int) -> bool:
        """Delete a registration; a runner at work is refused, or so it should be."""

        def carry_out() -> bool:
            found = self._by_id(scope, github_id)
            if found is None or found.deleted_at is not None:
                return False
            busy = found.works or found.assigned is not None
            if busy and not self._fault_schedule.strikes(FaultKind.DELETE_OF_BUSY):
                raise RunnerBusyError("422 is still running a job")
            if not busy and self._fault_schedule.strikes(FaultKind.DELETE_SAYS_BUSY):
                raise RunnerBusyError("422 is still running a job")
            self._actions.delete(found)
            return True

        return await self._answer(carry_out, _later())

    async def read_job(self, repository: str, job: JobId, now: Instant) -> JobObserved | None:
        """What GitHub says of a job, which may be what it said."""

        def carry_out() -> JobObserved | None:
            found = self._actions.jobs.get(job)
            if found is None or repository != found.arrival.repository:
                return None
            stale = self._fault_schedule.strikes(FaultKind.STALE_JOB)
            then = self._now() - (stale.target if stale is not None else 0.0)
            wrong = self._fault_schedule.strikes(FaultKind.WRONG_ANSWERS)
            return found.word_at(then if wrong is None else 0.0).fact(now, read=True)

        return await self._answer(carry_out, _later())

    async def run_from_fork(self, repository: str, run_id: int) -> bool | None:
        """Whether a run's head repository is another one."""

        def carry_out() -> bool | None:
            found = self._actions.latest.get(run_id)
            shown = found is not None and found.arrival.repository == repository
            return found.arrival.fork if found is not None and shown else None

        return await self._answer(carry_out, _later())

    async def runner_group(self, scope: str, name: str) -> RunnerGroup:
        """The one that there is, which admits all of the organization."""
        del scope, name
        group = RunnerGroup("all", allows_public_repositories=False, restricted_to_workflows=False)
        return await self._answer(lambda: group, _later())

    async def redeliver_failed(self, since: Instant) -> Redelivered:
        """Send failed deliveries again."""
        return await self._answer(lambda: self._webhooks.redeliver(since), _later())

    async def close(self) -> None:
        """Nothing is open."""

    def _by_id(self, scope: str, github_id: int) -> Registration | None:
        every = self._actions.registrations.values()
        return next((r for r in every if (r.scope, r.id) == (scope, github_id)), None)

    async def _answer(self, carry_out: Callable[[], T], lost: GitHubError) -> T:
        crash_point, fault_schedule = self.crash_point, self._fault_schedule
        await crash_point.burn()
        await asyncio.sleep(LATENCY / 2)
        if fault_schedule.strikes(FaultKind.SECONDARY_LIMIT):
            raise RetryLaterError("403 secondary rate limit", SECONDARY_WAIT)
        if fault_schedule.strikes(FaultKind.GITHUB_5XX):
            raise lost
        answer = carry_out()
        await asyncio.sleep(LATENCY / 2)
        await crash_point.burn()
        if fault_schedule.strikes(FaultKind.GITHUB_SWALLOWED):
            raise lost
        return answer


def secret_of(registration: Registration) -> str:
    """Its JIT configuration: whoever shows it is this runner."""
    return f"SECRET-JIT-{registration.id}"


def _later() -> RetryLaterError:
    return RetryLaterError("502 Bad Gateway", 1.0)
