"""Checks attestations: which machine of the fleet a proof of identity is about, and whether it may attest.

The provider checks the proof itself. Then this module finds the machine's record, and compares the record with
the proof.
"""

import asyncio
import hashlib
import hmac
from collections.abc import Awaitable, Callable, Container, Mapping
from datetime import datetime

import structlog

from autoscaler.controller.journal import Journal
from autoscaler.controller.ports.bootstrap import BootstrapRefusedError, NotKnownYetError
from autoscaler.controller.ports.provider import (
    OutcomeUnknownError,
    ProofRefusedError,
    ProvenIdentity,
    Provider,
    ProviderError,
)
from autoscaler.model.identifiers import ProviderMachineId, ProviderName, Seconds
from autoscaler.model.machines.launch_requests import LaunchRequestState
from autoscaler.model.machines.machine import Machine, MachineState

ANSWERED_WITHIN: Seconds = 3.0
"""How long a provider may take to check a proof or to protect a machine. Kubernetes' provider asks its API
server."""

LISTED_WITHIN: Seconds = 6.0
"""How long an attestation waits for a provider listing: agents wait 10 s for an answer."""

AWAITING_AT_ONCE = 1280
"""Maximum number of attestations waiting for a provider listing (about 20 KB each). Further machines get
503 and retry."""

MAY_DIFFER_BY: Seconds = 300.0
"""No document says that EC2's `LaunchTime` and an identity document's `pendingTime` are equal."""

OVER = frozenset(
    {MachineState.TERMINATING, MachineState.TERMINATED, MachineState.LOST, MachineState.FAILED}
)

_log = structlog.get_logger(__name__)


def hash_of(nonce: str) -> str:
    """Return the hash of a nonce, which records contain in place of the nonce."""
    return hashlib.sha256(nonce.encode()).hexdigest()


class Attestations:
    """Finds the machine of each attestation.

    `list_now` lists a provider's machines and waits for the list. Machines of a provider that is not in
    `opened` get 503.
    """

    def __init__(
        self,
        journal: Journal,
        providers: Mapping[ProviderName, Provider],
        list_now: Callable[[ProviderName, Seconds], Awaitable[None]],
        opened: Container[ProviderName],
    ) -> None:
        self._journal = journal
        self._providers = providers
        self._list_now = list_now
        self._opened = opened
        self._awaiting: set[tuple[ProviderName, ProviderMachineId]] = set()

    async def machine_of(
        self, provider: str, proof: bytes, nonce_hash: str, checked: Callable[[], None]
    ) -> tuple[Machine, ProvenIdentity]:
        """Return the machine that proves its identity, and this identity. Calls `checked` once it is valid.

        Raises BootstrapRefusedError, NotKnownYetError.
        """
        name = ProviderName(provider)
        if name not in self._providers:
            raise BootstrapRefusedError(403, "account")
        if name not in self._opened:
            # The provider's account is not known yet, so the proof cannot be checked.
            raise NotKnownYetError
        identity = await self._verify(name, proof)
        checked()
        machine = await self._identified(name, identity)
        self._check_records(machine, nonce_hash)
        return machine, identity

    async def _verify(self, provider: ProviderName, proof: bytes) -> ProvenIdentity:
        """Return the proven identity. A proof that cannot be checked now is checked again later."""
        try:
            async with asyncio.timeout(ANSWERED_WITHIN):
                return await self._providers[provider].verify(proof)
        except ProofRefusedError as error:
            status = 403 if error.reason in ("account", "region") else 401
            raise BootstrapRefusedError(status, error.reason) from error
        except (ProviderError, OutcomeUnknownError, TimeoutError) as error:
            problem = str(error) or f"no answer within {ANSWERED_WITHIN:g} s"
            _log.warning("proof_not_checked", provider=provider, error=problem)
            raise NotKnownYetError from error

    async def _identified(self, provider: ProviderName, identity: ProvenIdentity) -> Machine:
        """Return the machine of this identity. Waits for the next listing if it is not known yet."""
        try:
            return self._find(provider, identity)
        except NotKnownYetError:
            await self._await_list(provider, identity.provider_id)
        return self._find(provider, identity)

    async def _await_list(self, provider: ProviderName, instance: ProviderMachineId) -> None:
        """Wait for the next listing. Any instance in the account may cause one, but one at a time."""
        waiting = provider, instance
        if waiting in self._awaiting or len(self._awaiting) >= AWAITING_AT_ONCE:
            raise NotKnownYetError
        self._awaiting.add(waiting)
        try:
            await self._list_now(provider, LISTED_WITHIN)
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
            request.provider == provider
            and request.state in (LaunchRequestState.SENT, LaunchRequestState.UNKNOWN)
            for request in state.open_launch_requests.values()
        )
        if unbound or self._journal.now < state.started_at + 120.0:
            raise NotKnownYetError
        raise BootstrapRefusedError(403, "instance")

    def _compare(self, machine: Machine, identity: ProvenIdentity) -> None:
        if machine.state in OVER or machine.state is MachineState.EXITED:
            raise BootstrapRefusedError(410, "ended")
        if machine.work.may_run_job or machine.work.unverified:
            raise BootstrapRefusedError(409, "assigned")
        launched = machine.placement.image
        if launched and identity.image and launched != identity.image:
            raise BootstrapRefusedError(403, "image")
        if not identity.launch_time:
            return
        if not machine.placement.launch_time:
            raise NotKnownYetError
        if not launch_times_fit(machine, identity):
            raise BootstrapRefusedError(403, "launch_time")

    def _check_records(self, machine: Machine, nonce_hash: str) -> None:
        """Refuse an attestation that may come from a job, if the store may be a restored backup.

        The job on a machine can read the machine's proof of identity. A restored store may show that
        machine as ready, and the job would receive a second registration.
        """
        state = self._journal.ledger.state
        if machine.created_at >= state.started_at:
            return
        if state.evidence.is_missing_for(machine):
            raise NotKnownYetError
        if machine.nonce_hash and not hmac.compare_digest(machine.nonce_hash, nonce_hash):
            raise BootstrapRefusedError(401, "nonce")


def launch_times_fit(machine: Machine, identity: ProvenIdentity) -> bool:
    """Return True if the provider's list and the proof show the same launch time, within five minutes.

    Logs any difference. Values that are not ISO 8601 times must be equal.
    """
    if machine.placement.launch_time == identity.launch_time:
        return True
    try:
        proven = datetime.fromisoformat(identity.launch_time)
        apart = (proven - datetime.fromisoformat(machine.placement.launch_time)).total_seconds()
    except (ValueError, TypeError):
        return False
    fit = abs(apart) <= MAY_DIFFER_BY
    # Too large a difference makes every attestation of this machine fail, so it is a warning.
    log = _log.info if fit else _log.warning
    log("launch_time_differs", machine=machine.id, proven_later_by_seconds=apart)
    return fit
