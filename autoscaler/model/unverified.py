"""Unverified machines as an operator sees them."""

from dataclasses import dataclass

from autoscaler.model.identifiers import (
    Instant,
    MachineId,
    ProviderMachineId,
    ProviderName,
    SkuName,
)


@dataclass(frozen=True, slots=True)
class UnverifiedMachine:
    """One machine that counts against the limits and that the controller does not terminate.

    `machine` is None for a machine of another installation. `since` is when the machine became
    unverified, if this is known. `why` and `what_to_do` are sentences.
    """

    machine: MachineId | None
    provider: ProviderName
    provider_id: ProviderMachineId | None
    installation: str
    sku: SkuName
    since: Instant | None
    launched: str
    why: str
    what_to_do: str
