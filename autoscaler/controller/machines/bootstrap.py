"""Answers machines' bootstrap requests.

A machine proves its identity once (`attestation`); a nonce authenticates its later requests. The `Registrar`
registers runners; this module sends each one's configuration to its machine.
"""

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Container, Mapping
from typing import Any

import structlog

from autoscaler.controller.github.registrar import Registrar
from autoscaler.controller.github.releases import RegistrationReleaser
from autoscaler.controller.journal import Journal
from autoscaler.controller.machines.attestation import (
    ANSWERED_WITHIN,
    OVER,
    Attestations,
    hash_of,
)
from autoscaler.controller.ports.bootstrap import (
    Assigned,
    AttestationAnswer,
    BootstrapRefusedError,
    HealthChecks,
    NotKnownYetError,
)
from autoscaler.controller.ports.provider import (
    OutcomeUnknownError,
    Provider,
    ProviderError,
)
from autoscaler.controller.reporting.log_fields import machine_fields
from autoscaler.ledger.records.state import LedgerState
from autoscaler.model import events as e
from autoscaler.model.identifiers import (
    Instant,
    MachineId,
    ProviderName,
    RunnerName,
    Seconds,
    SkuName,
)
from autoscaler.model.jobs.demand import DemandClass
from autoscaler.model.jobs.runners import Runner, RunnerState
from autoscaler.model.machines.evidence import RESTORED_FROM
from autoscaler.model.machines.machine import ExitReason, Machine, MachineState

PROTOCOLS = frozenset({1})
"""The protocol versions served: the latest two, once there are two."""

_log = structlog.get_logger(__name__)

_ASSIGNED = frozenset({MachineState.ASSIGNED, MachineState.EXITED})


class BootstrapService:
    """Answers machines. Every request raises BootstrapRefusedError and NotKnownYetError.

    All requests but `attest` take the machine and its nonce, and refuse a nonce other than that of the last
    accepted attestation. Reports are durable on return, except stages and heartbeats.
    `list_now` lists a provider's machines and waits for the list. Machines of a provider that is not
    in `opened` yet get 503.
    """

    def __init__(
        self,
        journal: Journal,
        registrar: Registrar,
        releaser: RegistrationReleaser,
        providers: Mapping[ProviderName, Provider],
        health_checks: Mapping[SkuName, HealthChecks],
        list_now: Callable[[ProviderName, Seconds], Awaitable[None]],
        opened: Container[ProviderName],
    ) -> None:
        self._journal = journal
        self._registrar = registrar
        self._releaser = releaser
        self._providers = providers
        self._health_checks = health_checks
        self._attestations = Attestations(journal, providers, list_now, opened)
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
        """Check the proof, compare it with the launched machine, and bind the nonce.

        `checked` is called once the proof is valid; the rest is waiting, which costs little.
        """
        del agent  # logged by the server, and used for no decision
        if protocol not in PROTOCOLS:
            raise BootstrapRefusedError(426, "protocol")
        nonce_hash = hash_of(nonce)
        machine, identity = await self._attestations.machine_of(
            provider, proof, nonce_hash, checked
        )
        await self._journal.record(
            e.MachineAttested(self._journal.now, machine.id, nonce_hash, identity.host)
        )
        health_checks = self._health_checks.get(machine.sku, HealthChecks())
        return AttestationAnswer(machine.id, machine.sku, health_checks.of(machine))

    def authenticate(self, machine: MachineId, nonce: str) -> None:
        """Check the nonce alone, also that of a machine that has ended."""
        self._authenticated(machine, nonce, over=True)

    async def stage(self, machine: MachineId, nonce: str, stage: str) -> None:
        """Record a stage of the boot. Ignores reports that come after the assignment.

        A job with root could otherwise add a row of history with each report.
        """
        if self._authenticated(machine, nonce).state in _ASSIGNED:
            return
        self._journal.note(e.MachineReportedStage(self._journal.now, machine, stage))

    async def health_checks(
        self, machine: MachineId, nonce: str, passed: bool, detail: str, runner_version: str = ""
    ) -> None:
        """Make the machine ready, or have it terminated. Ignores reports that come after the assignment.

        An empty `runner_version` is unknown.
        """
        if self._authenticated(machine, nonce).work.may_run_job:
            return
        await self._journal.record(
            e.HealthChecksReported(self._journal.now, machine, passed, detail, runner_version)
        )

    async def poll(self, machine: MachineId, nonce: str, wait: Seconds) -> Assigned | None:
        """Return the assignment, once, or None if there is none within `wait` seconds."""
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
                return None
            await self._registrar.wait_for_news(machine, left)

    async def acknowledge(self, machine: MachineId, nonce: str, runner: RunnerName) -> None:
        """Record that the machine received its registration and starts the runner. Idempotent."""
        found = self._authenticated(machine, nonce)
        record = self._runner_of(found)
        if record is None or record.name != runner or record.configuration_sent_at is None:
            raise BootstrapRefusedError(409, "second_assignment")
        if record.listening_at is not None:
            await self._journal.commit()  # the first acknowledgement may not be durable yet
            return
        if record.state is not RunnerState.REGISTERED:
            raise BootstrapRefusedError(409, "expired")
        if self._releaser.is_replacing(runner):
            raise BootstrapRefusedError(409, "expired")
        await self._journal.record(e.RunnerListening(self._journal.now, runner))

    async def heartbeat(self, machine: MachineId, nonce: str) -> None:
        """Record that the machine is alive."""
        self._authenticated(machine, nonce)
        self._journal.note(e.MachineSeen(self._journal.now, machine))

    async def may_release(self, machine: MachineId, nonce: str) -> bool:
        """Return True if a DELETE of the machine's idle registration could be sent now."""
        return self._releaser.allowed(self._runner_of(self._authenticated(machine, nonce)))

    async def release(self, machine: MachineId, nonce: str) -> int:
        """Delete the machine's registration. Return GitHub's status (204, 404, 422), or 503 if it gave none."""
        return await self._releaser.release(self._runner_of(self._authenticated(machine, nonce)))

    async def exited(
        self,
        machine: MachineId,
        nonce: str,
        detail: str,
        reason: ExitReason = ExitReason.UNKNOWN,
    ) -> None:
        """Record that the machine's runner has exited."""
        found = self._authenticated(machine, nonce, over=True)
        if found.state not in OVER and found.state is not MachineState.EXITED:
            self._journal.note(e.MachineExited(self._journal.now, machine, detail, reason))
            self._journal.changed.set()
        await self._journal.commit()

    def shut_down(self) -> None:
        """Answer every waiting poll, because this process is about to stop."""
        self.shutting_down = True
        self._registrar.wake_all()

    def _wait_for_first_list(self, machine: Machine) -> None:
        """Refuse a poll while the store may be a restored backup and GitHub's runners are not listed yet.

        The job on a machine can poll as its agent does, and would receive a second registration.
        """
        state = self._journal.ledger.state
        maybe_restored = state.was_away > RESTORED_FROM
        if maybe_restored and state.evidence.is_missing_for(machine):
            raise NotKnownYetError

    def _authenticated(self, machine: MachineId, nonce: str, *, over: bool = False) -> Machine:
        found = self._journal.ledger.state.machines.get(machine)
        if found is None:
            raise BootstrapRefusedError(401, "machine")
        if not found.nonce_hash or not hmac.compare_digest(found.nonce_hash, hash_of(nonce)):
            raise BootstrapRefusedError(401, "nonce")
        if found.state in OVER and not over:
            raise BootstrapRefusedError(410, "ended")
        return found

    def _runner_of(self, machine: Machine) -> Runner | None:
        return self._journal.ledger.state.runner_of(machine)

    async def _assignment_for(self, machine: Machine) -> Assigned | None:
        if machine.state is MachineState.READY:
            return None
        runner = self._runner_of(machine)
        if machine.state is not MachineState.ASSIGNED or runner is None:
            raise BootstrapRefusedError(409, "not_ready")
        if runner.listening_at is not None or runner.state is RunnerState.BUSY:
            raise BootstrapRefusedError(409, "second_assignment")
        if runner.configuration_sent_at is not None or runner.state is RunnerState.DONE:
            await self._releaser.replace(machine, runner)
            return None
        if runner.state is not RunnerState.REGISTERED or not self._registrar.has_secret(
            runner.name
        ):
            return None
        return await self._send_configuration(machine, runner)

    async def _protect(self, machine: Machine) -> None:
        """Have the provider keep the machine. Raises NotKnownYetError if it does not.

        A provider that left fleet.yaml cannot be asked, and the machine runs its job unprotected.
        """
        provider = self._providers.get(machine.provider)
        protect = provider.capabilities.protect if provider is not None else None
        if protect is None or machine.placement.provider_id is None:
            return
        try:
            async with asyncio.timeout(ANSWERED_WITHIN):
                await protect(machine.placement.provider_id)
        except (ProviderError, OutcomeUnknownError, TimeoutError) as error:
            problem = str(error) or f"no answer within {ANSWERED_WITHIN:g} s"
            hint = error.hint if isinstance(error, ProviderError) else None
            _log.warning(
                "machine_not_protected", **machine_fields(machine), error=problem, hint=hint
            )
            raise NotKnownYetError from error

    async def _send_configuration(self, machine: Machine, runner: Runner) -> Assigned | None:
        await self._protect(machine)
        waits = machine.state is MachineState.ASSIGNED and runner.state is RunnerState.REGISTERED
        secret = self._registrar.take(runner.name) if waits else None
        if secret is None:
            return None
        await self._journal.record(e.ConfigurationSent(self._journal.now, runner.name))
        if machine.work.runner != runner.name or runner.state is not RunnerState.REGISTERED:
            return None
        job = job_parameters(self._journal.ledger.state, machine, runner.demand, self._journal.now)
        return Assigned(runner.name, secret, job)


def job_parameters(
    state: LedgerState, machine: Machine, demand: DemandClass, now: Instant
) -> dict[str, Any]:
    """Return the parameters of a machine's job hooks, which it gets with its assignment. O(1).

    They are the access of its SKU, and what the author of the job may want to know (docs/bootstrap.md).
    GitHub may give the runner another job of this class than the one that waits longest.
    """
    sku, placement = state.catalogue.skus.get(machine.sku), machine.placement
    found: dict[str, Any] = {
        "machine": machine.id,
        "sku": machine.sku,
        "instance": placement.provider_id or "",
        "offering": " ".join(
            (machine.provider, placement.instance_type, placement.zone, placement.capacity_type)
        ).strip(),
        "image": placement.image,
        "ready_s": _seconds(machine.created_at, machine.progress.ready_at),
        "idle_s": _seconds(machine.progress.ready_at, now),
        **_wait(state, machine, demand, now),
    }
    if sku is not None:
        access = sku.access
        found["access"] = {
            "repositories": list(access.repositories),
            "forks": access.forks,
            "public_repositories": access.public_repositories,
            "branches": list(access.branches),
            "contact": access.contact,
        }
    return found


def _wait(
    state: LedgerState, machine: Machine, demand: DemandClass, now: Instant
) -> dict[str, Any]:
    """Return how long the first job of the class has waited, and whether the machine was launched since."""
    queue = state.queues.get(demand)
    if not queue:
        return {}
    (queued_at, _), _ = queue.peekitem(0)
    return {"waited_s": _seconds(queued_at, now), "launched_for_it": machine.created_at > queued_at}


def _seconds(since: Instant | None, until: Instant | None) -> int | None:
    return None if since is None or until is None else max(0, round(until - since))
