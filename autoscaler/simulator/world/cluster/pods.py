"""A simulated cluster as a source of machines: each pod of the fleet is a machine of the world."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from autoscaler.model.catalogue import Offering
from autoscaler.model.identifiers import (
    Instant,
    LaunchRequestId,
    ProviderMachineId,
    ProviderName,
    SkuName,
)
from autoscaler.model.machines.failures import FailureClass
from autoscaler.simulator.world.cluster.api_server import Admission, ApiServer
from autoscaler.simulator.world.cluster.control_plane import ControlPlane
from autoscaler.simulator.world.cluster.kubelet import EVICTED, LOST, NO_DEVICES, Kubelets
from autoscaler.simulator.world.cluster.kubelet import OUT_OF_MEMORY as KILLED_FOR_MEMORY
from autoscaler.simulator.world.cluster.nodes import ENDED, Node, NodePool
from autoscaler.simulator.world.cluster.registry import Object, Registry
from autoscaler.simulator.world.cluster.scheduler import Scheduler
from autoscaler.simulator.world.cluster.statuses import End
from autoscaler.simulator.world.cluster.tokens import token_of
from autoscaler.simulator.world.fault_schedule import FaultSchedule
from autoscaler.simulator.world.instances import (
    OUT_OF_MEMORY,
    STRANGER,
    TAKEN_FOR,
    Instance,
)
from autoscaler.simulator.world.invariants import Invariants
from autoscaler.simulator.world.processes import Process, calling
from autoscaler.simulator.world.schedule import Fault

NOTICED_AFTER = 2.0
"""Seconds after which a controller has stored the events that follow from a pod's status."""


class PodMeaning(NamedTuple):
    """What a pod of the fleet is for, as the provider wrote it into the pod."""

    machine: ProviderMachineId
    launch_request: LaunchRequestId
    sku: SkuName
    offering: Offering
    installation: str


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """A cluster of a world.

    `meaning` returns what a stored pod is for, or None if it is not of the fleet. `stranger` returns a pod of
    another installation under the fleet's name.
    """

    pools: tuple[NodePool, ...]
    meaning: Callable[[Object], PodMeaning | None]
    stranger: Callable[[int], Object]


@dataclass(eq=False, slots=True)
class Pod(Instance):
    """A pod of the fleet. Its agent starts with its container."""

    pod: Object = field(default_factory=dict)
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    has_assignment: bool = False

    def proof(self) -> bytes:
        """Return the token in its projected volume."""
        return token_of(self.pod)

    async def started(self) -> None:
        """Return when the container starts."""
        await self.begun.wait()

    def assigned(self) -> None:
        """Note that the agent starts its runner: the container then ends with status 0."""
        self.has_assignment = True


class SimulatedCluster:
    """One cluster. Implements `MachineHost`, and `Containers` for its kubelets.

    The world sets `on_stop`, which is called when SIGTERM reaches a pod.
    `noticed` are the pods whose disruption a controller has read, and then had the time to store.
    """

    def __init__(
        self,
        name: ProviderName,
        plan: ClusterPlan,
        fault_schedule: FaultSchedule,
        invariants: Invariants,
        now: Callable[[], Instant],
    ) -> None:
        self.name = name
        self.instances: dict[ProviderMachineId, Pod] = {}
        self.running: dict[ProviderMachineId, Instance] = {}
        self.noticed: set[ProviderMachineId] = set()
        self.on_launch: Callable[[Instance], None] = lambda _: None
        self.on_end: Callable[[Instance], None] = lambda _: None
        self.on_stop: Callable[[Instance], None] = lambda _: None
        self.registry = Registry(now)
        self.nodes: dict[str, Node] = {}
        admission = Admission(self._creating, self._deleting, self._log)
        self.api = ApiServer(self.registry, self.nodes, fault_schedule, admission, now)
        self._plan = plan
        self.invariants = invariants
        self._now = now
        self._by_uid: dict[str, Pod] = {}
        self._disrupted: dict[str, Pod] = {}
        self.registry.listeners.append(self._changed)
        self._kubelets = Kubelets(self.registry, fault_schedule, self)
        nodes, pools = self.nodes, plan.pools
        scheduler = Scheduler(self.registry, nodes, pools, self._kubelets, fault_schedule)
        self._control = ControlPlane(
            self.registry, nodes, pools, self.api, self._kubelets, scheduler, fault_schedule
        )

    def remove_node(self, name: str) -> None:
        """Delete a node with its pods. No other node replaces it."""
        self._control.remove_node(name)

    def add_strangers(self, count: int) -> None:
        """Create pods of another installation."""
        for number in range(count):
            self.registry.create(self._plan.stranger(number))

    def begin(self, fault: Fault) -> None:
        """Begin a fault of the cluster."""
        self._control.begin(fault, self.own_pods)

    @property
    def own_pods(self) -> list[Object]:
        """Return the fleet's pods whose containers may run."""
        running = [one for one in self.instances.values() if one.id in self.running]
        return [
            pod
            for one in running
            if one.installation != STRANGER and (pod := self.registry.current(one.pod)) is not None
        ]

    @property
    def left_over(self) -> list[str]:
        """Return the names of the fleet's pods that have not ended."""
        return [
            one.slot
            for one in self.instances.values()
            if one.installation != STRANGER
            and (pod := self.registry.current(one.pod)) is not None
            and pod["status"]["phase"] not in ENDED
        ]

    @property
    def existing(self) -> Iterator[tuple[Pod, Object]]:
        """Yield the fleet's pods that the API server has, each with the object."""
        for pod in self.registry.pods.values():
            instance = self._by_uid.get(pod["metadata"]["uid"])
            if instance is not None and instance.installation != STRANGER:
                yield instance, pod

    def shown(self, pods: Iterable[Object]) -> None:
        """Note that the calling process got these pods from the API server."""
        for pod in pods if self._disrupted else ():
            instance = self._disrupted.get(pod.get("metadata", {}).get("uid", ""))
            if instance is not None and is_disrupted(pod):
                asyncio.get_running_loop().call_later(
                    NOTICED_AFTER, self._noticed, instance.id, calling()
                )

    def shut_down(
        self, instance: Instance, reason: str, failure: FailureClass | None = None
    ) -> None:
        """End a pod's containers: by themselves, or by kubelet (`failure` CAPACITY)."""
        assert isinstance(instance, Pod)
        if failure is FailureClass.CAPACITY:
            self._kubelets.exit(instance.pod, EVICTED, disrupted=True)
            return
        instance.reason = reason
        self._kubelets.exit(instance.pod, End() if instance.has_assignment else End(1, "Error"))

    def start(self, pod: Object, checks_pass: bool) -> None:
        """Start the container (see `Containers`)."""
        instance = self._by_uid.get(pod["metadata"]["uid"])
        if instance is not None:
            instance.host_passes_checks = checks_pass
            instance.begun.set()

    def stop(self, pod: Object) -> None:
        """Send SIGTERM (see `Containers`)."""
        instance = self._by_uid.get(pod["metadata"]["uid"])
        if instance is not None:
            self.on_stop(instance)

    def ended(self, pod: Object, end: End, disrupted: bool) -> None:
        """Note that nothing runs in the pod any more (see `Containers`)."""
        instance = self._by_uid.get(pod["metadata"]["uid"])
        if instance is not None:
            reason = OUT_OF_MEMORY if end is KILLED_FOR_MEMORY else instance.reason
            self._end(instance, TAKEN_FOR if disrupted else reason)

    def _end(self, instance: Pod, reason: str) -> None:
        if self.running.pop(instance.id, None) is not None:
            instance.ended_at, instance.reason = self._now(), reason
            self.on_end(instance)

    def _changed(self, pod: Object | None, last: Object) -> None:
        uid = last["metadata"]["uid"]
        known = self._by_uid.get(uid)
        if known is None:
            if pod is not None and (meaning := self._plan.meaning(pod)) is not None:
                self._launch(pod, meaning)
            return
        known.pod = last
        if is_disrupted(last):
            self._disrupted[uid] = known
        if pod is None and not self._kubelets.runs(last):
            self._end(known, known.reason or "deleted before it ran")

    def _launch(self, pod: Object, meaning: PodMeaning) -> None:
        machine, launch_request, sku, offering, installation = meaning
        instance = Pod(machine, launch_request, sku, offering, installation, self._now())
        instance.slot = f"{self.name}/{pod['metadata']['name']}"
        instance.pod = pod
        self._by_uid[pod["metadata"]["uid"]] = self.instances[machine] = instance
        self.running[machine] = instance
        self.on_launch(instance)

    def _creating(self, pod: Object) -> None:
        self.invariants.creating(pod["metadata"]["name"])

    def _deleting(self, pod: Object, body: Object) -> None:
        name, instance = pod["metadata"]["name"], self._by_uid.get(pod["metadata"]["uid"])
        if (body.get("preconditions") or {}).get("uid") is None:
            self.invariants.note(f"pod {name} was deleted by its name alone")
        if instance is None or instance.installation == STRANGER:
            self.invariants.note(f"pod {name} of others was deleted")
            return
        if instance.id in self.running:
            instance.termination_requests += 1
            # Another deletion changes nothing for a pod that is being deleted.
            if "deletionTimestamp" not in pod["metadata"]:
                self.invariants.terminating(instance)

    def _log(self, pod: Object) -> str:
        instance = self._by_uid.get(pod["metadata"]["uid"])
        return instance.console if instance is not None else ""

    def _noticed(self, machine: ProviderMachineId, process: Process | None) -> None:
        if process is None or not process.crash_point.reached.is_set():
            self.noticed.add(machine)


def is_disrupted(pod: Object) -> bool:
    """Return whether a pod's status shows that the cluster ended it."""
    status = pod["status"]
    states = [one["state"].get("terminated") or {} for one in status.get("containerStatuses") or ()]
    if any(one.get("reason") == LOST.container_reason for one in states):
        return True
    if status.get("reason") == NO_DEVICES.reason:
        return True
    return any(one["type"] == "DisruptionTarget" for one in status.get("conditions") or ())
