"""What an operator did: to one machine, to the targets of holds, or to the whole fleet."""

from dataclasses import dataclass

from autoscaler.model.events.event import Event
from autoscaler.model.identifiers import InstallationId, MachineId
from autoscaler.model.operators import HoldKind, HoldTarget, OperatorName


@dataclass(frozen=True, slots=True)
class MachineReleasedByOperator(Event):
    """An operator says that no job needs this machine (`autoscaler terminate`), or forces its termination."""

    machine: MachineId
    by: OperatorName
    forced: bool = False


@dataclass(frozen=True, slots=True)
class InstallationAdopted(Event):
    """An operator adopts an installation whose store is lost (`autoscaler adopt`)."""

    installation: InstallationId
    by: OperatorName


@dataclass(frozen=True, slots=True)
class HeldByOperator(Event):
    """An operator pauses, drains or quarantines a target (`autoscaler pause`, `drain`, `quarantine`)."""

    kind: HoldKind
    target: HoldTarget
    by: OperatorName


@dataclass(frozen=True, slots=True)
class ResumedByOperator(Event):
    """An operator ends the holds of a target (`autoscaler resume`)."""

    target: HoldTarget
    by: OperatorName


@dataclass(frozen=True, slots=True)
class RetriedByOperator(Event):
    """An operator has corrected what holds back a SKU, a provider or the fleet (`autoscaler retry`)."""

    target: HoldTarget
    by: OperatorName


@dataclass(frozen=True, slots=True)
class ConfigurationReloaded(Event):
    """A changed fleet.yaml is in force (`autoscaler reload`, SIGHUP). `changed` are the keys as in messages."""

    by: OperatorName
    changed: tuple[str, ...]
