"""What a machine is told: the `Bootstrap` port over the ledger.

It believes a proof of identity once, a nonce from then on, and nothing a machine says beyond what
ends that machine. It never registrations: it hands over what `registrar` minted.
"""

import hashlib
import hmac
from collections.abc import Awaitable, Callable, Container, Mapping
from typing import Any

from autoscaler.controller.journal import Journal
from autoscaler.controller.launch_times import launch_times_fit
from autoscaler.controller.ports.bootstrap import (
    Assigned,
    AttestationAnswer,
    BootstrapRefusedError,
    NotKnownYetError,
    StayReady,
)
from autoscaler.controller.ports.provider import ProofRefusedError, ProvenIdentity, Provider
from autoscaler.controller.registrar import Registrar
from autoscaler.controller.registration_releaser import RegistrationReleaser
from autoscaler.model import events as e
from autoscaler.model.identifiers import (
    MachineId,
    ProviderMachineId,
    ProviderName,
    RunnerName,
    Seconds,
    SkuName,
)
from autoscaler.model.launch_requests import LaunchRequestState
from autoscaler.model.machines import ExitReason, Machine, MachineState
from autoscaler.model.runners import Runner, RunnerState

PROTOCOLS = frozenset({1})
"""The versions served: the last two there are."""

TRY_AGAIN: Seconds = 5.0

LISTED_WITHIN: Seconds = 6.0
"""How long a hello waits for a list: agents wait 10 s for an answer."""

AWAITING_AT_ONCE = 1280
"""Hellos that wait for a list at any moment, each some 20 KB: a boot wave. Who comes then tries again."""

RESTORED_FROM: Seconds = 120.0
"""A store whose last heartbeat is older than this at the start may be a restored backup. After a shorter
absence, an idle machine gets a job without waiting for GitHub's list."""

_ASSIGNED = frozenset({MachineState.ASSIGNED, MachineState.EXITED})
_OVER = frozenset(
    {MachineState.TERMINATING, MachineState.TERMINATED, MachineState.LOST, MachineState.FAILED}
)


class BootstrapService:
    """Implements the Bootstrap port. `list_soon` has a provider's machines listed, and waits for it.

    No proof is looked at of a provider that is not in `opened` yet (None: all are).
    """

    def __init__(
        self,
        journal: Journal,
        registrar: Registrar,
        releaser: RegistrationReleaser,
        providers: Mapping[ProviderName, Provider],
        gates: Mapping[SkuName, dict[str, Any]],
        list_soon: Callable[[ProviderName, Seconds], Awaitable[None]],
        opened: Container[ProviderName] | None = None,
    ) -> None:
        self._journal = journal
        self._registrar = registrar
        self._releaser = releaser
        self._providers = providers
        self._gates = gates
        self._list_soon = list_soon
        self._opened: Container[ProviderName] = providers if opened is None else opened
        self._awaiting: set[tuple[ProviderName, ProviderMachineId]] = set()
        self.shutting_down = False

    async def attest(
        self,
        provider: str,
        proof: bytes,
        nonce: str,
        protocol: int,
        agent: str,
        checked: Callable[[], None] = lambda: None,
    ) -> AttestationAnswer:
        """Check the proof, compare it with what we launched, and bind the nonce."""
        del agent  # in the log, not in a decision
        if protocol not in PROTOCOLS:
            raise BootstrapRefusedError(426, "protocol")
        name = ProviderName(provider)
        if name not in self._providers:
            raise BootstrapRefusedError(403, "account")
        if name not in self._opened:
            # Its account is not known yet: whoever this is has to wait.
            raise NotKnownYetError(TRY_AGAIN)
        try:
            identity = self._providers[name].verify(proof)
        except ProofRefusedError as error:
            status = 403 if error.reason in ("account", "region") else 401
            raise BootstrapRefusedError(status, error.reason) from error
        checked()
        machine = await self._identified(name, identity)
        self._check_records(machine, _hash(nonce))
        await self._journal.record(e.MachineAttested(self._journal.now, machine.id, _hash(nonce)))
        return AttestationAnswer(machine.id, machine.sku, self._gates.get(machine.sku, {}))

    async def stage(self, machine: MachineId, nonce: str, stage: str) -> None:
        """Keep how far the boot has come; from the assignment on, ignore it.

        A job with root could have a row of history written with each.
        """
        if self._authenticated(machine, nonce).state in _ASSIGNED:
            return
        self._journal.note(e.MachineReportedStage(self._journal.now, machine, stage))

    async def health_checks(
        self, machine: MachineId, nonce: str, passed: bool, detail: str, runner_version: str = ""
    ) -> None:
        """Park the machine, or have it ended. After the hand-over it is ignored, as stages are."""
        if self._authenticated(machine, nonce).handed_over:
            return
        await self._journal.record(
            e.HealthChecksReported(self._journal.now, machine, passed, detail, runner_version)
        )

    async def poll(self, machine: MachineId, nonce: str, wait: Seconds) -> StayReady | Assigned:
        """Hand an assignment over, once, or say after a while that there is none."""
        until = self._journal.now + wait
        self._wait_for_first_list(self._authenticated(machine, nonce))
        self._journal.note(e.MachineSeen(self._journal.now, machine, polled=True))
        while True:
            found = self._authenticated(machine, nonce)
            assigned = await self._assignment_for(found)
            if assigned is not None:
                return assigned
            left = until - self._journal.now
            if left <= 0 or self.shutting_down:
                self._journal.note(e.MachineSeen(self._journal.now, machine, polled=True))
                return StayReady()
            await self._registrar.wait_for_news(machine, left)

    async def acknowledge(self, machine: MachineId, nonce: str, runner: RunnerName) -> None:
        """From here on the machine is GitHub's; saying so again changes nothing."""
        found = self._authenticated(machine, nonce)
        record = self._runner_of(found)
        if record is None or record.name != runner or record.handed_over_at is None:
            raise BootstrapRefusedError(409, "second_assignment")
        if record.listening_at is not None:
            await self._journal.commit()  # the first one may still be on its way to the disk
            return
        if record.state is not RunnerState.REGISTERED:
            raise BootstrapRefusedError(409, "expired")
        if self._releaser.is_replacing(runner):
            raise BootstrapRefusedError(409, "expired")
        await self._journal.record(e.RunnerListening(self._journal.now, runner))

    async def heartbeat(self, machine: MachineId, nonce: str) -> None:
        """It is alive."""
        self._authenticated(machine, nonce)
        self._journal.note(e.MachineSeen(self._journal.now, machine))

    async def may_release(self, machine: MachineId, nonce: str) -> bool:
        """Whether a DELETE of its idle registration could be sent at once."""
        return self._releaser.allowed(self._runner_of(self._authenticated(machine, nonce)))

    async def release(self, machine: MachineId, nonce: str) -> int:
        """Delete its registration; GitHub's status, which decides whether it may leave."""
        return await self._releaser.release(self._runner_of(self._authenticated(machine, nonce)))

    async def exited(
        self,
        machine: MachineId,
        nonce: str,
        detail: str,
        reason: ExitReason = ExitReason.UNKNOWN,
    ) -> None:
        """Its runner has left."""
        found = self._authenticated(machine, nonce, over=True)
        if found.state not in _OVER and found.state is not MachineState.EXITED:
            self._journal.note(e.MachineExited(self._journal.now, machine, detail, reason))
            self._journal.changed.set()
        await self._journal.commit()

    def shut_down(self) -> None:
        """Answer every waiting poll: this process is about to go."""
        self.shutting_down = True
        self._registrar.wake_all()

    async def _identified(self, provider: ProviderName, identity: ProvenIdentity) -> Machine:
        """The machine, by the next list where what is known does not do."""
        try:
            return self._find(provider, identity)
        except NotKnownYetError:
            await self._await_list(provider, identity.provider_id)
        return self._find(provider, identity)

    async def _await_list(self, provider: ProviderName, instance: ProviderMachineId) -> None:
        """Anybody's instance in the account may ask for a list, so each waits for one at a time."""
        waiting = provider, instance
        if waiting in self._awaiting or len(self._awaiting) >= AWAITING_AT_ONCE:
            raise NotKnownYetError(TRY_AGAIN)
        self._awaiting.add(waiting)
        try:
            await self._list_soon(provider, LISTED_WITHIN)
        finally:
            self._awaiting.discard(waiting)

    def _find(self, provider: ProviderName, identity: ProvenIdentity) -> Machine:
        state = self._journal.ledger.state
        machine_id = state.by_provider_id.get(identity.provider_id)
        if machine_id is not None and state.machines[machine_id].provider == provider:
            machine = state.machines[machine_id]
            self._compare(machine, identity)
            return machine
        unbound = any(
            call.provider == provider
            and call.state in (LaunchRequestState.SENT, LaunchRequestState.UNKNOWN)
            for call in state.open_launch_requests.values()
        )
        if unbound or self._journal.now < state.started_at + 120.0:
            raise NotKnownYetError(TRY_AGAIN)
        raise BootstrapRefusedError(403, "instance")

    def _compare(self, machine: Machine, identity: ProvenIdentity) -> None:
        if machine.state in _OVER or machine.state is MachineState.EXITED:
            raise BootstrapRefusedError(410, "ended")
        if machine.handed_over or machine.unverified:
            raise BootstrapRefusedError(409, "assigned")
        if machine.image and machine.image != identity.image:
            raise BootstrapRefusedError(403, "image")
        if not machine.launch_time:
            raise NotKnownYetError(TRY_AGAIN)
        if not launch_times_fit(machine, identity):
            raise BootstrapRefusedError(403, "launch_time")

    def _check_records(self, machine: Machine, nonce_hash: str) -> None:
        """Refuse a hello that may come from a job, where the store may be older than the world.

        The job on a machine can read the machine's proof of identity. A restored store may show that
        machine as waiting, and a second registration would be given to the job.
        """
        state = self._journal.ledger.state
        if machine.created_at >= state.started_at:
            return
        if machine.is_assignment_unknown(state.started_at, state.every_scope_listed_at):
            raise NotKnownYetError(TRY_AGAIN)
        if machine.nonce_hash and not hmac.compare_digest(machine.nonce_hash, nonce_hash):
            raise BootstrapRefusedError(401, "nonce")

    def _wait_for_first_list(self, machine: Machine) -> None:
        """Refuse a poll while the store may be a restored backup and GitHub has not listed who works.

        The job on a machine can poll as its agent does, and would get a second registration.
        """
        state = self._journal.ledger.state
        maybe_restored = state.was_away > RESTORED_FROM
        if maybe_restored and machine.is_assignment_unknown(
            state.started_at, state.every_scope_listed_at
        ):
            raise NotKnownYetError(TRY_AGAIN)

    def _authenticated(self, machine: MachineId, nonce: str, *, over: bool = False) -> Machine:
        found = self._journal.ledger.state.machines.get(machine)
        if found is None:
            raise BootstrapRefusedError(401, "machine")
        if not found.nonce_hash or not hmac.compare_digest(found.nonce_hash, _hash(nonce)):
            raise BootstrapRefusedError(401, "nonce")
        if found.state in _OVER and not over:
            raise BootstrapRefusedError(410, "ended")
        return found

    def _runner_of(self, machine: Machine) -> Runner | None:
        if machine.runner is None:
            return None
        return self._journal.ledger.state.runners.get(machine.runner)

    async def _assignment_for(self, machine: Machine) -> Assigned | None:
        if machine.state is MachineState.READY:
            return None
        runner = self._runner_of(machine)
        if machine.state is not MachineState.ASSIGNED or runner is None:
            raise BootstrapRefusedError(409, "not_ready")
        if runner.listening_at is not None or runner.state is RunnerState.BUSY:
            raise BootstrapRefusedError(409, "second_assignment")
        if runner.handed_over_at is not None or runner.state is RunnerState.DONE:
            await self._releaser.replace(machine, runner)
            return None
        if runner.state is not RunnerState.REGISTERED or not self._registrar.has_secret(
            runner.name
        ):
            return None
        return await self._hand_over(machine, runner)

    async def _hand_over(self, machine: Machine, runner: Runner) -> Assigned | None:
        secret = self._registrar.take(runner.name)
        if secret is None:
            return None
        await self._journal.record(e.RunnerHandedOver(self._journal.now, runner.name))
        if machine.runner != runner.name or runner.state is not RunnerState.REGISTERED:
            return None
        return Assigned(runner.name, secret)


def _hash(nonce: str) -> str:
    return hashlib.sha256(nonce.encode()).hexdigest()
