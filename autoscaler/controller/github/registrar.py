"""Registers runners at GitHub and keeps each secret until the machine fetches it, once.

A secret exists only in this process's memory. A registration whose secret is lost, or whose job no
longer needs a runner, is deleted, and its machine becomes ready again.
"""

import asyncio

from autoscaler.controller.journal import Journal
from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.github import (
    GitHub,
    GitHubError,
    NewRegistration,
    OperatorError,
    RegistrationOutcomeUnknownError,
    RetryLaterError,
    RunnerBusyError,
    RunnerExistsError,
)
from autoscaler.controller.wakeups import Wakeups
from autoscaler.model.backoff import Backoff
from autoscaler.model.cooldowns import RateLimit
from autoscaler.model.events import (
    RunnerClosed,
    RunnerDeregistered,
    RunnerRegistered,
    RunnerRegistrationFailed,
)
from autoscaler.model.identifiers import Instant, MachineId, RunnerName, Seconds
from autoscaler.model.jobs.runners import Runner, RunnerState
from autoscaler.model.machines.failures import FailureClass

RETRIES = Backoff(2.0, 60.0)

REGISTRATIONS_AT_ONCE = 128
"""Maximum number of concurrent registrations (about 15 KB each): more than GitHub processes at once."""


class Registrar:
    """Registers and deregisters runners. `take` gives a registration's secret to its machine's poll, once."""

    def __init__(self, journal: Journal, github: GitHub, clock: Clock) -> None:
        self._journal = journal
        self._github = github
        self._clock = clock
        self._turns = asyncio.Semaphore(REGISTRATIONS_AT_ONCE)
        self._secrets: dict[RunnerName, str] = {}
        self._news: Wakeups[MachineId] = Wakeups(clock)

    async def register(self, name: RunnerName) -> None:
        """Register a named runner. After an unknown outcome, delete whatever GitHub has under that name."""
        runner = self._journal.ledger.state.runners[name]
        try:
            registered = await self._registered(runner)
        except RetryLaterError as error:
            at = self._journal.now + error.retry_after
            await self._failed(runner, FailureClass.THROTTLED, error, at, error.limit)
        except OperatorError as error:
            await self._failed(runner, FailureClass.CONFIGURATION, error, self._journal.now)
        except (RunnerExistsError, RegistrationOutcomeUnknownError) as error:
            await self.deregister(name, f"registered without an answer: {error}")
        else:
            if registered is not None:
                await self._keep(runner, registered)

    async def _registered(self, runner: Runner) -> NewRegistration | None:
        demand = runner.demand
        async with self._turns:
            if runner.state is not RunnerState.NAMED:
                return None  # deregistered while it waited for the semaphore
            return await self._github.register(
                demand.scope, demand.runner_group, runner.name, demand.runner_labels
            )

    async def deregister(self, name: RunnerName, reason: str) -> None:
        """Delete a registration that its machine never got. Retries until GitHub answers."""
        runner = self._journal.ledger.state.runners[name]
        self._secrets.pop(name, None)
        # Also if the record is closed already: closing the record deletes nothing at GitHub, and the
        # machine may be terminated before the answer to its registration is lost.
        if await self._delete(runner):
            await self._journal.record(RunnerDeregistered(self._journal.now, name, reason))
            self.wake(runner.machine)
        else:
            busy = "busy, but its configuration was never sent"
            await self._journal.record(RunnerClosed(self._journal.now, name, busy))

    def take(self, name: RunnerName) -> str | None:
        """Return the secret of a registration and forget it. None if it was taken or never known."""
        return self._secrets.pop(name, None)

    def has_secret(self, name: RunnerName) -> bool:
        """Return True if the registration's secret waits here for its machine."""
        return name in self._secrets

    async def wait_for_news(self, machine: MachineId, seconds: Seconds) -> None:
        """Wait until this machine's registration changes, or for `seconds`."""
        await self._news.wait(machine, seconds)

    def wake(self, machine: MachineId) -> None:
        """Let this machine's waiting poll check its registration again."""
        self._news.wake(machine)

    def wake_all(self) -> None:
        """Let every waiting poll check again, for example at shutdown."""
        self._news.wake_all()

    async def _keep(self, runner: Runner, registered: NewRegistration) -> None:
        if runner.state is RunnerState.NAMED:
            self._prune_secrets()
            self._secrets[runner.name] = registered.jit_config
            await self._journal.record(
                RunnerRegistered(self._journal.now, runner.name, registered.github_id)
            )
            self.wake(runner.machine)
            return
        # Deregistered or closed meanwhile: that may have found no registration to delete yet.
        await self._delete(runner, registered.github_id)

    async def discard(self, runner: Runner) -> None:
        """Delete the registration of a machine that terminates before it gets it."""
        self._secrets.pop(runner.name, None)
        if runner.github_id is not None:
            await self._delete(runner)

    async def _delete(self, runner: Runner, github_id: int | None = None) -> bool:
        """Delete a registration, also one whose id is unknown. Return False if its runner is busy.

        Retries until GitHub answers.
        """
        scope = runner.demand.scope
        failures = 0
        while True:
            known = github_id or runner.github_id
            try:
                if known is None:
                    found = await self._github.find_runner(scope, runner.name)
                    known = found.github_id if found is not None else None
                if known is not None:
                    await self._github.delete_runner(scope, known)
            except RunnerBusyError:
                return False
            except GitHubError as error:
                pause = getattr(error, "retry_after", 0.0)
                await self._clock.sleep(max(RETRIES.delay(failures), pause))
                failures += 1
            else:
                return True

    def _prune_secrets(self) -> None:
        """Drop the secrets of registrations that are over."""
        known = self._journal.ledger.state.runners
        for name in tuple(self._secrets):
            runner = known.get(name)
            if runner is None or runner.state is RunnerState.DONE:
                del self._secrets[name]

    async def _failed(
        self,
        runner: Runner,
        failure: FailureClass,
        error: GitHubError,
        retry_at: Instant,
        limit: RateLimit | None = None,
    ) -> None:
        await self._journal.record(
            RunnerRegistrationFailed(
                self._journal.now, runner.name, failure, str(error), retry_at, limit
            )
        )
        self.wake(runner.machine)
