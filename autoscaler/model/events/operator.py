"""What only an operator can say: that a machine is nobody's, that an older store is lost."""

from dataclasses import dataclass

from autoscaler.model.events.event import Event
from autoscaler.model.identifiers import InstallationId, MachineId


@dataclass(frozen=True, slots=True)
class MachineReleasedByOperator(Event):
    """An operator says that a machine, of which that cannot be told, is nobody's."""

    machine: MachineId


@dataclass(frozen=True, slots=True)
class InstallationTakenOver(Event):
    """An operator says that the store of this older installation is lost: its id is ours now."""

    installation: InstallationId
