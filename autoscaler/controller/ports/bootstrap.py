"""The requests that a machine can send to the controller, without HTTP (see docs/bootstrap.md)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from autoscaler.model.identifiers import MachineId, ProviderName, RunnerName, Seconds
from autoscaler.model.machines.machine import ExitReason, Machine


class BootstrapRefusedError(Exception):
    """The request is refused. `status` is the HTTP status, `reason` a fixed, short word.

    400 malformed | 401 proof refused, nonce unknown | 403 account, instance, image, launch_time
    | 409 assigned, expired, second_assignment | 410 ended (power off) | 426 protocol.
    """

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(f"{status} {reason}")
        self.status = status
        self.reason = reason


TRY_AGAIN: Seconds = 5.0


class NotKnownYetError(Exception):
    """The machine is not known yet, or the controller is not ready: 503 with Retry-After (seconds)."""

    def __init__(self, retry_after: Seconds = TRY_AGAIN) -> None:
        super().__init__(f"retry after {retry_after:g} s")
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class HealthChecks:
    """The parameters of the health checks of a SKU's machines: see docs/bootstrap.md.

    `accelerators` has the value of `accelerator` by provider and instance type, for a SKU that does not name
    its own.
    """

    parameters: dict[str, Any] = field(default_factory=dict)
    accelerators: Mapping[tuple[ProviderName, str], dict[str, Any]] = field(default_factory=dict)

    def of(self, machine: Machine) -> dict[str, Any]:
        """Return the parameters of a machine."""
        own = self.accelerators.get((machine.provider, machine.placement.instance_type))
        return self.parameters if own is None else {**self.parameters, "accelerator": own}


@dataclass(frozen=True, slots=True)
class AttestationAnswer:
    """The answer to an attestation. `health_checks` are the parameters of the machine's health checks."""

    machine: MachineId
    sku: str
    health_checks: dict[str, Any]


@dataclass(frozen=True, slots=True)
class StayReady:
    """The long poll ended without an assignment."""


@dataclass(frozen=True, slots=True)
class Assigned:
    """An assignment, given to the machine once. `jit_config` is a secret.

    `job` is what the machine's job hooks need: see docs/bootstrap.md.
    """

    runner: RunnerName
    jit_config: str
    job: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        """Return a representation without the secret."""
        return f"Assigned(runner={self.runner!r})"


class Bootstrap(Protocol):
    """Answers machines. Every method raises BootstrapRefusedError and NotKnownYetError.

    All methods but `attest` take the machine and its nonce, and refuse a nonce other than that of the
    last accepted attestation. Reports are durable on return, except stages and heartbeats.
    """

    async def attest(
        self,
        provider: str,
        proof: bytes,
        nonce: str,
        protocol: int,
        agent: str,
        checked: Callable[[], None],
    ) -> AttestationAnswer:
        """Check the proof and bind the nonce to the machine.

        `checked` is called once the proof is valid; the rest is waiting, which costs little.
        """

    def authenticate(self, machine: MachineId, nonce: str) -> None:
        """Check the nonce alone, before anything else of a request is read."""

    async def stage(self, machine: MachineId, nonce: str, stage: str) -> None:
        """Report a stage of the boot."""

    async def health_checks(
        self, machine: MachineId, nonce: str, passed: bool, detail: str, runner_version: str = ""
    ) -> None:
        """Report the result of the machine's health checks. An empty `runner_version` is unknown."""

    async def poll(self, machine: MachineId, nonce: str, wait: Seconds) -> StayReady | Assigned:
        """Wait for an assignment, up to `wait` seconds."""

    async def acknowledge(self, machine: MachineId, nonce: str, runner: RunnerName) -> None:
        """Report that the machine has the assignment. It starts the runner once this returns."""

    async def heartbeat(self, machine: MachineId, nonce: str) -> None:
        """Report that the machine is alive."""

    async def may_release(self, machine: MachineId, nonce: str) -> bool:
        """Return True if a DELETE of the machine's registration could be sent to GitHub now."""

    async def release(self, machine: MachineId, nonce: str) -> int:
        """Delete the machine's registration. Return GitHub's status (204, 404, 422), or 503 if it gave none."""

    async def exited(
        self,
        machine: MachineId,
        nonce: str,
        detail: str,
        reason: ExitReason = ExitReason.UNKNOWN,
    ) -> None:
        """Report that the runner exited and that the machine powers off."""
