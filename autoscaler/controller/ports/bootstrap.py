"""The answers to the requests that machines send to the controller (see docs/bootstrap.md), without HTTP."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from autoscaler.model.identifiers import MachineId, ProviderName, RunnerName, Seconds
from autoscaler.model.machines.machine import Machine


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
