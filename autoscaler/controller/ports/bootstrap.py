"""What a machine may ask of the controller, free of HTTP: the server's side of docs/bootstrap.md."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from autoscaler.model.identifiers import MachineId, RunnerName, Seconds
from autoscaler.model.machines import ExitReason


class BootstrapRefusedError(Exception):
    """The request is refused. `status` is the HTTP status, `reason` a fixed, short word.

    400 malformed | 401 proof refused, nonce unknown | 403 account, instance, image, launch_time
    | 409 assigned, expired, second_assignment | 410 ended (power off) | 426 protocol.
    """

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(f"{status} {reason}")
        self.status = status
        self.reason = reason


class NotKnownYetError(Exception):
    """Perhaps ours, not bound yet, or we are not ready: 503 with Retry-After (seconds)."""

    def __init__(self, retry_after: Seconds) -> None:
        super().__init__(f"retry after {retry_after:g} s")
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class AttestationAnswer:
    """`health_checks` are parameters of the machine's own checks: plain JSON values."""

    machine: MachineId
    sku: str
    health_checks: dict[str, Any]


@dataclass(frozen=True, slots=True)
class StayReady:
    """The long poll ended without an assignment."""


@dataclass(frozen=True, slots=True)
class Assigned:
    """An assignment, once. `jit_config` is a secret."""

    runner: RunnerName
    jit_config: str

    def __repr__(self) -> str:
        """Without the secret."""
        return f"Assigned(runner={self.runner!r})"


class Bootstrap(Protocol):
    """Every method raises BootstrapRefusedError and NotKnownYetError.

    All but `attest` take the machine and its nonce, and refuse a nonce that is not the one of the
    last accepted hello. A return means that what was said is durable, but for stages and signs of
    life, which cost nothing to lose.
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

        `checked` is called once the proof is believed: what is left is waiting, and costs little.
        """

    async def stage(self, machine: MachineId, nonce: str, stage: str) -> None:
        """Boot has come this far."""

    async def health_checks(
        self, machine: MachineId, nonce: str, passed: bool, detail: str, runner_version: str = ""
    ) -> None:
        """The machine's own checks have ended. An empty `runner_version` is not known."""

    async def poll(self, machine: MachineId, nonce: str, wait: Seconds) -> StayReady | Assigned:
        """Wait for an assignment, for `wait` seconds at most."""

    async def acknowledge(self, machine: MachineId, nonce: str, runner: RunnerName) -> None:
        """The machine has the assignment and will start the runner once this returns."""

    async def heartbeat(self, machine: MachineId, nonce: str) -> None:
        """The machine is alive."""

    async def may_release(self, machine: MachineId, nonce: str) -> bool:
        """Whether a DELETE of its registration could be sent to GitHub at once."""

    async def release(self, machine: MachineId, nonce: str) -> int:
        """Delete its registration: GitHub's status (204, 404, 422), or 503 if it could not be asked."""

    async def exited(
        self,
        machine: MachineId,
        nonce: str,
        detail: str,
        reason: ExitReason = ExitReason.UNKNOWN,
    ) -> None:
        """The runner has left; the machine powers off."""
