"""What an operator decided: that no job needs a machine, or that a store is lost."""

from dataclasses import dataclass

from autoscaler.model.events.event import Event
from autoscaler.model.identifiers import InstallationId, MachineId
from autoscaler.model.operators import OperatorName


@dataclass(frozen=True, slots=True)
class MachineReleasedByOperator(Event):
    """An operator says that no job needs this unverified machine (`autoscaler terminate`)."""

    machine: MachineId
    by: OperatorName


@dataclass(frozen=True, slots=True)
class InstallationAdopted(Event):
    """An operator adopts an installation whose store is lost (`autoscaler adopt`)."""

    installation: InstallationId
    by: OperatorName
