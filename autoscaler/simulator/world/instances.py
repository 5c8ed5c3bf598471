"""The state of a simulated machine: as its provider knows it, and what really happens on it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from autoscaler.model.catalogue import Offering
from autoscaler.model.events import ListedMachine
from autoscaler.model.failures import FailureClass
from autoscaler.model.identifiers import (
    Instant,
    LaunchRequestId,
    MachineId,
    ProviderMachineId,
    SkuName,
)
from autoscaler.simulator.world.jobs import Registration

IMAGE = "ami-1"
STRANGER = "another"
"""The installation ID of machines that do not belong to this fleet."""

TAKEN_FOR = "Server.SpotInstanceTermination: taken back"
RETIRED_FOR = "Server.InstanceRetirement: its host is retired"
POWERED_OFF = "Client.InstanceInitiatedShutdown: it powered itself off"
OUT_OF_MEMORY = "OOMKilled: the container used more memory than its limit"
INJECTED = (TAKEN_FOR, RETIRED_FOR)
"""Reasons of ends that faults caused, and that the controller reports as interruptions."""

MAY_KILL = (*INJECTED, OUT_OF_MEMORY)
"""Only machines with these reasons may end while they run a job."""


@dataclass(eq=False, slots=True)
class Instance:
    """A machine as its provider knows it. `console` is what it wrote there.

    From `stopping_at` on its provider shows it as shutting down, and its operating system stops.
    A pod's `slot` is its name: of each name, one runs at most.
    `asked_to_end` counts the requests to terminate it; until `stays_until` none of them has an effect,
    nor has its own power-off.
    """

    id: ProviderMachineId
    call: LaunchRequestId
    sku: SkuName
    offering: Offering
    installation: str
    launched_at: Instant
    stopping_at: Instant | None = None
    ended_at: Instant | None = None
    reason: str = ""
    failure: FailureClass | None = None
    console: str = ""
    slot: str = ""
    asked_to_end: int = 0
    stays_until: Instant = 0.0
    _listed: dict[str, ListedMachine] = field(default_factory=dict)

    @property
    def launch_time(self) -> str:
        """Return the launch time as the provider writes it."""
        return f"t{self.launched_at:.0f}"

    def listed(self, then: Instant) -> ListedMachine:
        """Return how lists show it as it was then. Built once for each state, for each list asks."""
        state = "running"
        if self.ended_at is not None and self.ended_at <= then:
            state = "terminated"
        elif self.stopping_at is not None and self.stopping_at <= then:
            state = "shutting-down"
        known = self._listed.get(state)
        if known is None:
            known = self._listed[state] = self._as_listed(state)
        return known

    def _as_listed(self, state: str) -> ListedMachine:
        offering, leaves = self.offering, state != "running"
        return ListedMachine(
            self.id,
            self.installation,
            self.call,
            self.sku,
            state == "terminated",
            offering.instance_type,
            offering.zone,
            offering.capacity_type,
            offering.dollars_per_hour,
            ((offering.quota_key, offering.quota_units),),
            IMAGE,
            self.launch_time,
            self.reason if leaves else "",
            self.failure if leaves else None,
            leaving=state == "shutting-down",
            state=state,
        )

    def proof(self) -> bytes:
        """Return what the metadata service would sign."""
        return f"signed:{self.id},{IMAGE},{self.launch_time}".encode()

    async def started(self) -> None:
        """Return when its operating system boots: at once on EC2."""

    def assigned(self) -> None:
        """Note that it has an assignment: EC2 does not know."""


class MachineHost(Protocol):
    """A simulated provider, as the world's machines need it. The world sets the callbacks."""

    running: dict[ProviderMachineId, Instance]
    on_launch: Callable[[Instance], None]
    on_end: Callable[[Instance], None]

    def shut_down(
        self, instance: Instance, reason: str, failure: FailureClass | None = None
    ) -> None:
        """End a machine. `failure` CAPACITY: the provider takes it back."""


@dataclass(eq=False, slots=True)
class Seat:
    """What happens on a machine. Times are Unix seconds.

    `listens` from when its listener starts until its runner has left.
    """

    instance: Instance
    machine: MachineId | None = None
    health_checks_passed: bool = False
    ready_since: Instant | None = None
    registration: Registration | None = None
    listens: bool = False
    cut_off_until: Instant = 0.0

    @property
    def works(self) -> bool:
        """Return whether a job runs on the machine."""
        return self.registration is not None and self.listens and self.registration.works
