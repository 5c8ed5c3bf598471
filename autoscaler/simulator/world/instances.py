"""A machine as its provider knows it, and as whoever stands beside it sees it. Facts only."""

from dataclasses import dataclass

from autoscaler.model.catalogue import Offering
from autoscaler.model.failures import FailureClass
from autoscaler.model.identifiers import CallId, Instant, MachineId, ProviderMachineId, SkuName
from autoscaler.simulator.world.jobs import Registration

IMAGE = "ami-1"
STRANGER = "another"
"""The installation of machines that are none of ours."""


@dataclass(eq=False, slots=True)
class Instance:
    """A machine as its provider knows it. `console` is what it wrote there.

    `asked_to_end` counts the requests to terminate it; until `stays_until` none of them has an effect,
    nor has its own power-off.
    """

    id: ProviderMachineId
    call: CallId
    sku: SkuName
    offering: Offering
    installation: str
    launched_at: Instant
    ended_at: Instant | None = None
    reason: str = ""
    failure: FailureClass | None = None
    console: str = ""
    asked_to_end: int = 0
    stays_until: Instant = 0.0

    @property
    def launch_time(self) -> str:
        """As the provider writes it."""
        return f"t{self.launched_at:.0f}"

    def proof(self) -> bytes:
        """What its metadata service would sign."""
        return f"signed:{self.id},{IMAGE},{self.launch_time}".encode()


@dataclass(eq=False, slots=True)
class Seat:
    """What goes on at a machine. Times are Unix seconds.

    `listens` from when its listener starts until its runner has left.
    """

    instance: Instance
    machine: MachineId | None = None
    gate_passed: bool = False
    parked_since: Instant | None = None
    registration: Registration | None = None
    listens: bool = False
    cut_off_until: Instant = 0.0

    @property
    def works(self) -> bool:
        """Whether a job runs here."""
        return self.registration is not None and self.listens and self.registration.works
