"""What cannot be told of a machine from here, in words for an operator."""

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
    """One machine that the controller counts in its caps and does not end.

    `machine` is ours, and None for a machine of another installation; `since` is when it was
    first not clear, where that is known. `why` and `what_to_do` are sentences.
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
