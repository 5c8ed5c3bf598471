"""Deletes registrations whose configuration was sent to a machine.

There are two cases: the machine releases its unused registration, or the answer with the registration
did not reach the machine. If GitHub refuses (422, the runner is busy), the registration stays.
"""

from typing import NoReturn

from autoscaler.controller.effects import Effects
from autoscaler.controller.github.registrar import Registrar
from autoscaler.controller.journal import Journal
from autoscaler.controller.ports.bootstrap import BootstrapRefusedError, NotKnownYetError
from autoscaler.controller.ports.github import GitHub, GitHubError, RunnerBusyError
from autoscaler.model import events as e
from autoscaler.model.cooldowns import active_cooldown, registration_key
from autoscaler.model.identifiers import Instant, MachineId, RunnerName, Seconds
from autoscaler.model.jobs.runners import (
    MAX_ASSIGNMENTS,
    Runner,
    RunnerState,
    runner_name,
    runner_names,
)
from autoscaler.model.machines.machine import Machine, MachineState

REMEMBERED_FOR: Seconds = 60.0
"""How long a machine that releases again gets GitHub's last answer without another request to GitHub."""

NO_FURTHER_REGISTRATION = "no further registration"


class RegistrationReleaser:
    """Deletes registrations at GitHub while the machine waits for the answer."""

    def __init__(
        self, journal: Journal, github: GitHub, registrar: Registrar, effects: Effects
    ) -> None:
        self._journal = journal
        self._github = github
        self._registrar = registrar
        self._effects = effects
        self._replacing: set[RunnerName] = set()
        self._under_way: set[MachineId] = set()
        self._answers: dict[RunnerName, tuple[Instant, int]] = {}

    def allowed(self, runner: Runner | None) -> bool:
        """Return True if a DELETE could be sent now: no job is known, and no cooldown is in force.

        A registration that is already over counts too: the last answer may not have reached the machine.
        """
        if runner is None or runner.state not in (RunnerState.LISTENING, RunnerState.DONE):
            return False
        if runner.machine in self._under_way or self._remembered(runner.name) not in (None, 404):
            return False
        cooldowns = self._journal.ledger.state.cooldowns
        return (
            active_cooldown(cooldowns, registration_key(runner.demand.scope), self._journal.now)
            is None
        )

    async def release(self, runner: Runner | None) -> int:
        """Delete an idle registration and return GitHub's status, or 503 if GitHub gave none.

        Sends one DELETE at a time for a machine and one a minute for a registration, because a job
        with root can send its machine's requests at any rate.
        """
        if runner is None or runner.github_id is None:
            return 404
        if runner.state is RunnerState.BUSY:
            return 422
        if (remembered := self._remembered(runner.name)) is not None:
            return remembered
        if runner.machine in self._under_way:
            return 503
        self._under_way.add(runner.machine)
        try:
            status = await self._release(runner, runner.github_id)
        finally:
            self._under_way.discard(runner.machine)
        self._remember(runner.name, 404 if status == 204 else status)
        return status

    async def _release(self, runner: Runner, github_id: int) -> int:
        try:
            there = await self._github.delete_runner(runner.demand.scope, github_id)
        except RunnerBusyError:
            return 422
        except GitHubError:
            return 503
        await self._journal.record(
            e.RunnerClosed(self._journal.now, runner.name, "released idle by its machine")
        )
        return 204 if there else 404

    def _remembered(self, name: RunnerName) -> int | None:
        until, status = self._answers.get(name, (0.0, 0))
        return status if self._now < until else None

    def _remember(self, name: RunnerName, status: int) -> None:
        # The dictionary is in order of expiry, so only its beginning has to be checked.
        self._answers.pop(name, None)
        while self._answers and next(iter(self._answers.values()))[0] <= self._now:
            del self._answers[next(iter(self._answers))]
        self._answers[name] = (self._now + REMEMBERED_FOR, status)

    async def replace(self, machine: Machine, runner: Runner) -> None:
        """Replace a registration whose configuration did not arrive: delete it and name a new one.

        Raises:
            BootstrapRefusedError: 410 if the machine gets no further registration, because GitHub
                says that the runner is busy or too many configurations were sent.
            NotKnownYetError: GitHub cannot be reached now.
        """
        if runner.reason.startswith(NO_FURTHER_REGISTRATION):
            raise BootstrapRefusedError(410, "ended")
        if active_cooldown(
            self._journal.ledger.state.cooldowns, registration_key(runner.demand.scope), self._now
        ):
            raise NotKnownYetError
        if runner.state is not RunnerState.DONE:
            self._replacing.add(runner.name)
            try:
                await self._delete(runner)
            finally:
                self._replacing.discard(runner.name)
        if runner.listening_at is not None or runner.state is RunnerState.BUSY:
            raise BootstrapRefusedError(409, "second_assignment")
        if self._assignments_of(machine) >= MAX_ASSIGNMENTS:
            await self._close(runner, "sent to its machine too often")
        self._name_again(machine, runner)

    def is_replacing(self, name: RunnerName) -> bool:
        """Return True while this registration is being deleted."""
        return name in self._replacing

    @property
    def _now(self) -> Instant:
        return self._journal.now

    async def _delete(self, runner: Runner) -> None:
        if runner.github_id is None:
            raise NotKnownYetError
        try:
            await self._github.delete_runner(runner.demand.scope, runner.github_id)
        except RunnerBusyError:
            await self._close(runner, "busy, yet its machine asks for an assignment")
        except GitHubError as error:
            raise NotKnownYetError from error

    def _name_again(self, machine: Machine, runner: Runner) -> None:
        if machine.work.runner != runner.name or machine.state is not MachineState.ASSIGNED:
            return  # another poll already replaced it, or the machine terminated meanwhile
        catalogue = self._journal.ledger.state.catalogue
        name = runner_name(
            catalogue.fleet, catalogue.installations.own, machine.id, machine.work.tries + 1
        )
        now = self._journal.now
        self._journal.note(
            e.RunnerClosed(now, runner.name, "its configuration did not arrive"),
            e.RunnerNamed(now, name, machine.id, runner.demand),
        )
        self._effects.start(self._record_and_register(name))

    async def _record_and_register(self, name: RunnerName) -> None:
        # Runs in the background: a poll whose connection breaks would cancel it halfway.
        await self._journal.commit()
        await self._registrar.register(name)

    async def _close(self, runner: Runner, reason: str) -> NoReturn:
        # The machine powers itself off on 410. The controller must not terminate it: it may be busy.
        await self._journal.record(
            e.RunnerClosed(self._now, runner.name, f"{NO_FURTHER_REGISTRATION}: {reason}")
        )
        raise BootstrapRefusedError(410, "ended")

    def _assignments_of(self, machine: Machine) -> int:
        state = self._journal.ledger.state
        names = runner_names(state.catalogue, machine.id, machine.work.tries)
        known = (state.runners.get(name) for name in names)
        return sum(
            runner is not None and runner.configuration_sent_at is not None for runner in known
        )
