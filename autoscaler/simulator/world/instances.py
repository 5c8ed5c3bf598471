"""The state of a simulated machine: as its provider knows it, and what really happens on it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from autoscaler.model.catalogue import Offering
from autoscaler.model.events import ListedMachine
from autoscaler.model.identifiers import (
    Instant,
    LaunchRequestId,
    MachineId,
    ProviderMachineId,
    SkuName,
)
from autoscaler.model.machines.failures import FailureClass
from autoscaler.simulator.world.jobs import Registration

IMAGE = "ami-1"
STRANGER = "another"
"""The installation ID of machines that do not belong to this fleet."""

TAKEN_FOR = "Server.SpotInstanceTermination: taken back"
RETIRED_FOR = "Server.InstanceRetirement: its host is retired"
POWERED_OFF = "Client.InstanceInitiatedShutdown: it powered itself off"
OUT_OF_MEMORY = "OOMKilled: the container used more memory than its limit"
INJECTED = (TAKEN_FOR, RETIRED_FOR)
"""Reasons of terminations that faults cause and that the controller reports as interruptions."""

MAY_KILL = (*INJECTED, OUT_OF_MEMORY)
"""Only machines with these reasons may end while they run a job."""


@dataclass(eq=False, slots=True)
class Instance:
    """A machine as its provider knows it. `console` is its console output.

    From `stopping_at` on, its provider shows it as shutting down, and its operating system stops.
    A pod's `slot` is its name: at most one pod of each name runs.
    `termination_requests` counts the requests to terminate it. Until `ignores_until`, these requests and
    its own power-off have no effect. `host_passes_checks`: its host passes the agent's health checks.
    """

    id: ProviderMachineId
    launch_request: LaunchRequestId
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
    termination_requests: int = 0
    ignores_until: Instant = 0.0
    host_passes_checks: bool = True
    _listed: dict[str, ListedMachine] = field(default_factory=dict)

    @property
    def launch_time(self) -> str:
        """Return the launch time as the provider writes it."""
        return f"t{self.launched_at:.0f}"

    def listed(self, then: Instant) -> ListedMachine:
        """Return the machine as lists show its state at that moment. Created once for each state."""
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
            self.launch_request,
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
        """Return its proof of identity, which the metadata service would sign."""
        return f"signed:{self.id},{IMAGE},{self.launch_time}".encode()

    async def started(self) -> None:
        """Return when its operating system boots: at once on EC2."""

    def assigned(self) -> None:
        """Do nothing: EC2 does not know which machines have an assignment."""


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
class MachineActivity:
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
