"""The operators of a fleet, what their tokens allow, and what they hold: paused, drained and quarantined parts.

A hold is a row of the cooldowns with a key of its own, so that the store and the Fleet carry it as they carry
every other hold. It ends when an operator resumes its target.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NewType

from autoscaler.model.cooldowns import Cooldown
from autoscaler.model.identifiers import Instant, MachineId, ProviderName, SkuName

OperatorName = NewType("OperatorName", str)
"""The name of a token, which the history shows beside each request of its owner."""


class Role(StrEnum):
    """What a token allows. `operate` includes `read`."""

    READ = "read"
    OPERATE = "operate"


@dataclass(frozen=True, slots=True)
class Operator:
    """The owner of a token."""

    name: OperatorName
    role: Role

    @property
    def may_operate(self) -> bool:
        """Return True if the owner may change the fleet."""
        return self.role is Role.OPERATE


NO_END: Instant = 253_402_300_799.0
"""`Cooldown.until` of a hold without an end: the last second of the year 9999."""


class HoldKind(StrEnum):
    """What an operator did to a target.

    paused       no machine is launched there
    drained      as paused, and its machines get no further job: those without one are terminated
    quarantined  a machine that gets no job and is kept for inspection, until `Cooldown.until`
    """

    PAUSED = "paused"
    DRAINED = "drained"
    QUARANTINED = "quarantined"


class TargetKind(StrEnum):
    """Kinds of things that an operator can hold."""

    FLEET = "fleet"
    SKU = "sku"
    PROVIDER = "provider"
    MACHINE = "machine"


@dataclass(frozen=True, slots=True, order=True)
class HoldTarget:
    """What is held. As text `sku/gpu`, as kubectl writes it; `all` is the fleet."""

    kind: TargetKind
    name: str

    def __str__(self) -> str:
        """Return the text that the commands accept."""
        return ALL if self.kind is TargetKind.FLEET else f"{self.kind}/{self.name}"


ALL = "all"
WHOLE_FLEET = HoldTarget(TargetKind.FLEET, ALL)

OperatorHolds = Mapping[str, Cooldown]
"""The holds in force, by key. `Cooldown.reason` says who set the hold, and when."""


def hold_key(kind: HoldKind, target: HoldTarget) -> str:
    """Return the key of a hold among the cooldowns."""
    return f"{kind}:{target.kind}/{target.name}"


_PREFIXES = tuple(f"{kind}:" for kind in HoldKind)


def is_operator_hold(key: str) -> bool:
    """Return True for the key of a hold that an operator set."""
    return key.startswith(_PREFIXES)


def parse_hold_key(key: str) -> tuple[HoldKind, HoldTarget]:
    """Return what `hold_key` was called with."""
    kind, _, target = key.partition(":")
    target_kind, _, name = target.partition("/")
    return HoldKind(kind), HoldTarget(TargetKind(target_kind), name)


def held(holds: OperatorHolds) -> Iterator[tuple[HoldKind, HoldTarget, Cooldown]]:
    """Yield the holds in force."""
    for key, row in holds.items():
        kind, target = parse_hold_key(key)
        yield kind, target, row


def launch_hold(holds: OperatorHolds, target: HoldTarget) -> Cooldown | None:
    """Return the hold because of which nothing is launched for a fleet, SKU or provider, or None."""
    if not holds:
        return None
    return holds.get(hold_key(HoldKind.PAUSED, target)) or holds.get(
        hold_key(HoldKind.DRAINED, target)
    )


def sku_target(sku: SkuName) -> HoldTarget:
    """Return a SKU as the target of a hold."""
    return HoldTarget(TargetKind.SKU, sku)


def provider_target(provider: ProviderName) -> HoldTarget:
    """Return a provider as the target of a hold."""
    return HoldTarget(TargetKind.PROVIDER, provider)


def machine_target(machine: MachineId) -> HoldTarget:
    """Return a machine as the target of a hold."""
    return HoldTarget(TargetKind.MACHINE, machine)


def quarantine_of(holds: OperatorHolds, machine: MachineId) -> Cooldown | None:
    """Return the quarantine of a machine, or None. It is over from `until` on."""
    if not holds:
        return None
    return holds.get(hold_key(HoldKind.QUARANTINED, machine_target(machine)))


def drain_of(
    holds: OperatorHolds, machine: MachineId, sku: SkuName, provider: ProviderName
) -> Cooldown | None:
    """Return the hold that drains a machine: its own, its SKU's or its provider's; None without one."""
    if not holds:
        return None
    targets = (machine_target(machine), sku_target(sku), provider_target(provider))
    rows = (holds.get(hold_key(HoldKind.DRAINED, target)) for target in targets)
    return next((row for row in rows if row is not None), None)
