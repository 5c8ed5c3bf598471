"""What the status counts besides the fleet's own value."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from autoscaler.model.identifiers import SkuName
from autoscaler.model.reasons.faults import Fault
from autoscaler.model.wait_objectives import Starts, WaitObjective


@dataclass(frozen=True, slots=True)
class Counts:
    """What the fleet's value does not have."""

    running: Mapping[SkuName, int]
    dollars_per_hour: float
    unverified: int = 0
    not_terminating: int = 0
    foreign: int = 0
    providers_not_listed: tuple[str, ...] = ()
    observed: tuple[Fault, ...] = ()
    """Faults that only the metrics show."""
    last_hour: Mapping[str, Starts] = field(default_factory=dict)
    """The starts of the last hour by SKU, with the jobs that are overdue."""
    objectives: tuple[WaitObjective, ...] = ()
    mends: Mapping[str, str] = field(default_factory=dict)
    """What an operator can do, by the code of a provider's error or by a quota's name."""
    image_names: Mapping[str, str] = field(default_factory=dict)
    """The names of images by their IDs, as far as they are known."""
