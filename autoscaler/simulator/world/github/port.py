"""GitHub's API for the controller: `actions` with outages, rate limits and wrong answers."""

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
from autoscaler.model.cooldowns import RateLimit
from autoscaler.model.events import JobObserved
from autoscaler.model.identifiers import Instant, JobId, RunnerName, Seconds
from autoscaler.model.jobs.job import RunOrigin
from autoscaler.model.jobs.runner_group_excess import RunnerGroup
from autoscaler.simulator.world.fault_schedule import FaultSchedule
from autoscaler.simulator.world.github.actions import Actions
from autoscaler.simulator.world.github.webhooks import Webhooks
from autoscaler.simulator.world.jobs import Registration
from autoscaler.simulator.world.processes import count_call, outside, send
from autoscaler.simulator.world.schedule import FaultKind

T = TypeVar("T")
LATENCY: Seconds = 0.2
SECONDARY_WAIT: Seconds = 60.0
DEFAULT_GROUP = "Default"
OPEN_GROUP = RunnerGroup("all", allows_public_repositories=False, restricted_to_workflows=False)
"""A group that admits all private repositories of its organization."""


class SimulatedGitHub:
    """Implements the GitHub port.

    `registering` is called with the name of each runner that a request registers. `deleted` are the runners
    that requests deleted, in order. An organization has the runner groups `groups`, by name.
    """

    latency: Seconds = LATENCY

    def __init__(
        self,
        actions: Actions,
        webhooks: Webhooks,
        fault_schedule: FaultSchedule,
        registering: Callable[[RunnerName], None],
        now: Callable[[], Instant],
    ) -> None:
        self.deleted: list[RunnerName] = []
        self.groups: dict[str, RunnerGroup] = {DEFAULT_GROUP: OPEN_GROUP}
        self._actions = actions
        self._webhooks = webhooks
        self._fault_schedule = fault_schedule
        self._registering = registering
        self._now = now

    async def register(
        self, scope: str, runner_group: str, name: RunnerName, labels: tuple[str, ...]
    ) -> NewRegistration:
        """Register a runner. It is offline until its machine's listener starts."""
        del runner_group  # which repositories a group admits has no effect here

        def carry_out() -> NewRegistration:
            if self._fault_schedule.hit(FaultKind.REGISTRATION_REFUSED):
                raise OperatorError("403 Resource not accessible by integration")
            known = self._actions.registrations.get(name)
            if known is not None and known.deleted_at is None:
                raise RunnerExistsError(f"409 {name}")
            made = self._actions.register(scope, name, labels)
            return NewRegistration(made.id, secret_of(made))

        self._registering(name)
        return await self._answer(
            "register",
            lambda: send(carry_out, _later),
            RegistrationOutcomeUnknownError("the connection broke"),
        )

    async def find_runner(self, scope: str, name: RunnerName) -> RegisteredRunner | None:
        """Return the runner as the list shows it, which may be out of date."""

        def carry_out() -> RegisteredRunner | None:
            stale = self._fault_schedule.hit(FaultKind.STALE_LIST)
            then = self._now() - (stale.target if stale is not None else 0.0)
            found = self._actions.registrations.get(name)
            hidden = self._fault_schedule.hit(FaultKind.WRONG_ANSWERS) is not None
            if hidden or found is None or found.scope != scope or not found.listed_by(then):
                return None
            busy = found.busy_by(then)
            if busy and self._fault_schedule.hit(FaultKind.LIST_SAYS_IDLE):
                busy = False
            return RegisteredRunner(found.id, name, found.online_by(then), busy)

        return await self._answer("find_runner", carry_out, _later())

    async def read_runner(self, scope: str, github_id: int) -> RegisteredRunner | None:
        """Return the runner as it is now. Reads by ID are never out of date."""

        def carry_out() -> RegisteredRunner | None:
            found, now = self._by_id(scope, github_id), self._now()
            if found is None or not found.listed_by(now):
                return None
            return RegisteredRunner(found.id, found.name, found.online_by(now), found.busy_by(now))

        return await self._answer("read_runner", carry_out, _later())

    async def delete_runner(self, scope: str, github_id: int) -> bool:
        """Delete a registration. GitHub refuses if the runner has a job, unless a fault hits."""

        def carry_out() -> bool:
            found = self._by_id(scope, github_id)
            if found is None or found.deleted_at is not None:
                return False
            busy = found.works or found.assigned is not None
            if busy and not self._fault_schedule.hit(FaultKind.DELETE_OF_BUSY):
                raise RunnerBusyError("422 is still running a job")
            if not busy and self._fault_schedule.hit(FaultKind.DELETE_SAYS_BUSY):
                raise RunnerBusyError("422 is still running a job")
            self._actions.delete(found)
            self.deleted.append(found.name)
            return True

        return await self._answer("delete_runner", lambda: send(carry_out, _later), _later())

    async def read_job(self, repository: str, job: JobId, now: Instant) -> JobObserved | None:
        """Return a job as GitHub shows it, which may be out of date."""

        def carry_out() -> JobObserved | None:
            found = self._actions.jobs.get(job)
            if found is None or repository != found.arrival.repository:
                return None
            stale = self._fault_schedule.hit(FaultKind.STALE_JOB)
            then = self._now() - (stale.target if stale is not None else 0.0)
            wrong = self._fault_schedule.hit(FaultKind.WRONG_ANSWERS)
            return found.snapshot_at(then if wrong is None else 0.0).to_event(now, read=True)

        return await self._answer("read_job", carry_out, _later())

    async def run_origin(self, repository: str, run_id: int) -> RunOrigin | None:
        """Return where a run comes from."""

        def carry_out() -> RunOrigin | None:
            found = self._actions.latest.get(run_id)
            shown = found is not None and found.arrival.repository == repository
            return found.arrival.origin if found is not None and shown else None

        return await self._answer("run_origin", carry_out, _later())

    async def runner_group(self, scope: str, name: str) -> RunnerGroup:
        """Return a runner group of the organization."""
        del scope

        def carry_out() -> RunnerGroup:
            if name not in self.groups:
                raise OperatorError(f"there is no runner group {name}")
            return self.groups[name]

        return await self._answer("runner_group", carry_out, _later())

    async def redeliver_failed(self, since: Instant) -> Redelivered:
        """Send failed deliveries again."""
        return await self._answer(
            "redeliver_failed", lambda: outside(lambda: self._webhooks.redeliver(since)), _later()
        )

    async def close(self) -> None:
        """Do nothing: there is no connection."""

    def _by_id(self, scope: str, github_id: int) -> Registration | None:
        every = self._actions.registrations.values()
        return next((r for r in every if (r.scope, r.id) == (scope, github_id)), None)

    async def _answer(self, method: str, carry_out: Callable[[], T], lost: GitHubError) -> T:
        """Answer a request. Raises `lost` if it is lost, or its answer. Subclasses use `method`."""
        del method
        fault_schedule = self._fault_schedule
        await count_call()
        await asyncio.sleep(self.latency / 2)
        if fault_schedule.hit(FaultKind.SECONDARY_LIMIT):
            raise RetryLaterError("403 secondary rate limit", SECONDARY_WAIT, RateLimit.SECONDARY)
        if fault_schedule.hit(FaultKind.GITHUB_5XX):
            raise lost
        answer = carry_out()
        await asyncio.sleep(self.latency / 2)
        await count_call()
        if fault_schedule.hit(FaultKind.GITHUB_SWALLOWED):
            raise lost
        return answer


def secret_of(registration: Registration) -> str:
    """Return the JIT configuration of a registration."""
    return f"SECRET-JIT-{registration.id}"


def _later(why: str = "502 Bad Gateway") -> RetryLaterError:
    return RetryLaterError(why, 1.0)
