"""The kubelets of all nodes: they start, stop and report the pods that the scheduler put on their nodes.

Source: Kubernetes documentation, "Pod Lifecycle": termination of pods, container states.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from autoscaler.model.identifiers import Seconds
from autoscaler.simulator.world.cluster.nodes import Node, NodeFault, devices
from autoscaler.simulator.world.cluster.registry import Object, Registry
from autoscaler.simulator.world.cluster.statuses import End, Stage, kubelet_status, with_disruption
from autoscaler.simulator.world.fault_schedule import FaultSchedule
from autoscaler.simulator.world.schedule import FaultKind

SEEN_AFTER: Seconds = 0.5
PULL: Seconds = 5.0
PULL_AGAIN: Seconds = 60.0
CREATE_AGAIN: Seconds = 10.0
TAKEN_AFTER: Seconds = 5.0
"""Between the start of a container and its loss or eviction on a node with this fault."""
STOPS_AFTER: Seconds = 3.0
"""Between SIGTERM and the end of the containers. The pod's grace period is longer."""

KILLED = End(137, "Error")
STOPPED = End(143, "Error")
EVICTED = End(
    137, "Error", reason="Evicted", message="The node was low on resource: ephemeral-storage."
)
OUT_OF_MEMORY = End(137, "OOMKilled")
REFUSALS = (
    End(
        reason="UnexpectedAdmissionError",
        message="Pod was rejected: Allocate failed due to no healthy devices present",
        refused=True,
    ),
    End(
        reason="Evicted",
        message="Pod was rejected: The node had condition: [DiskPressure]. ",
        refused=True,
    ),
)
"""How kubelet does not admit a pod, in turn (`rejectPod` in `pkg/kubelet/kubelet.go`)."""

NO_DEVICES = REFUSALS[0]
"""How kubelet, started again, refuses a pod whose devices it allocates anew, before their plugin has registered
(kubernetes/kubernetes#125579, #138446)."""

SHUTTING_DOWN = End(
    reason="NodeShutdown", message="Pod was rejected as the node is shutting down.", refused=True
)

LOST = End(255, "Unknown")
"""How containerd shows a container that ended with its node (`internal/cri/server/restart.go`)."""


START_FAILED = End(
    128,
    "StartError",
    "failed to create containerd task: OCI runtime create failed: nvidia-container-cli: initialization error: "
    "nvml error: driver/library version mismatch: unknown",
)

_REFUSED = {NodeFault.REFUSES: NO_DEVICES, NodeFault.SHUTS_DOWN: SHUTTING_DOWN}
_TAKEN = {NodeFault.LOSES: LOST, NodeFault.EVICTS: EVICTED}
"""How the pods of a faulty node end: before they are admitted, and after their start."""


class Containers(Protocol):
    """The containers of pods, which kubelets start and stop."""

    def start(self, pod: Object, checks_pass: bool) -> None:
        """Start the container of a pod. `checks_pass`: the node passes the agent's health checks."""

    def stop(self, pod: Object) -> None:
        """Send SIGTERM to the containers."""

    def ended(self, pod: Object, end: End, disrupted: bool) -> None:
        """Note that no container of the pod runs any more."""


@dataclass(eq=False, slots=True)
class _Pod:
    """A pod on its node, as its kubelet knows it. `disrupted`: the cluster ended it, without the controller."""

    pod: Object
    node: Node
    stage: Stage = Stage.BOUND
    stopping: bool = False
    removing: bool = False
    disrupted: bool = False
    end: End | None = None
    timers: list[asyncio.TimerHandle] = field(default_factory=list)


class Kubelets:
    """Call `bound` for each pod that the scheduler puts on a node."""

    def __init__(
        self, registry: Registry, fault_schedule: FaultSchedule, containers: Containers
    ) -> None:
        self._registry = registry
        self._fault_schedule = fault_schedule
        self._containers = containers
        self._pods: dict[str, _Pod] = {}
        self._refused = self._restarts = 0
        registry.listeners.append(self._changed)

    def bound(self, pod: Object, node: Node) -> None:
        """Begin to start a pod."""
        known = self._pods[pod["metadata"]["uid"]] = _Pod(pod, node)
        if node.restarting:
            return
        if not node.alive:
            # The scheduler uses a dead node until it is marked as not ready. Nothing starts there.
            known.disrupted = True
            self._end(known, KILLED)
            return
        self._later(SEEN_AFTER, known, self._admit)

    def exit(self, pod: Object, end: End, disrupted: bool = False) -> None:
        """End a pod's containers."""
        known = self._known(pod)
        if known is not None:
            known.disrupted = known.disrupted or disrupted
            self._end(known, end)

    def disrupt(self, pod: Object) -> None:
        """Note that the cluster, and not the controller, deletes a pod."""
        known = self._known(pod)
        if known is not None:
            known.disrupted = True

    def node_died(self, node: Node) -> None:
        """Kill the containers of a node. Nothing reports it."""
        for known in self._on(node):
            known.disrupted = True
            self._end(known, KILLED)

    def restarted(self, node: Node) -> None:
        """Admit the pods of a node again, as a kubelet does that starts.

        It spares the devices of containers that run (`isContainerAlreadyRunning` in
        `pkg/kubelet/cm/devicemanager/manager.go`), and allocates all others anew.
        """
        for known in self._on(node):
            if node.alive and known.end is None and _allocates_again(known):
                known.disrupted = True
                self._end(known, NO_DEVICES)

    def node_restarts(self, node: Node) -> None:
        """End the containers of a node. Its kubelet reports it when the node is back.

        Every second pod with devices is refused then, because it comes before its device plugin.
        """
        for known in self._on(node):
            if known.end is None and known.stage is Stage.RUNNING:
                known.disrupted = True
                self._restarts += _has_devices(known.pod, "containers")
                refused = _has_devices(known.pod, "containers") and self._restarts % 2
                self._end(known, NO_DEVICES if refused else LOST)
            elif known.end is None:
                _stop_timers(known)
                known.stage = Stage.BOUND

    def connected_again(self, node: Node) -> None:
        """Report what happened on a node while it was disconnected, and stop what was deleted.

        Begins to start the pods that were bound to a node while it restarted.
        """
        for known in self._on(node):
            self._report(known)
            self._look(known)
            if known.stage is Stage.BOUND and not known.timers and not known.stopping:
                self._later(SEEN_AFTER, known, self._admit)

    def runs(self, pod: Object) -> bool:
        """Return whether a pod's containers may run."""
        return self._known(pod) is not None

    def _known(self, pod: Object) -> _Pod | None:
        known = self._pods.get(pod["metadata"]["uid"])
        return known if known is not None and known.end is None else None

    def _on(self, node: Node) -> list[_Pod]:
        return [known for known in self._pods.values() if known.node is node]

    def _changed(self, pod: Object | None, last: Object) -> None:
        known = self._pods.get(last["metadata"]["uid"])
        if known is not None:
            known.pod = last
            if pod is None or "deletionTimestamp" in last["metadata"]:
                self._look(known)

    def _look(self, known: _Pod) -> None:
        """Stop a deleted pod, if its kubelet knows that it was deleted."""
        current = self._registry.current(known.pod)
        deleted = current is None or "deletionTimestamp" in current["metadata"]
        if not deleted or not known.node.connected or not known.node.alive:
            return
        if known.end is not None:
            if not known.removing:
                known.removing = True
                self._later(SEEN_AFTER, known, self._remove)
        elif not known.stopping:
            known.stopping = True
            self._containers.stop(known.pod)
            stuck = self._fault_schedule.hit(FaultKind.POD_STUCK)
            left = 0.0 if stuck is None else stuck.until - self._fault_schedule.time
            self._later(max(STOPS_AFTER, left), known, lambda one: self._end(one, STOPPED))

    def _admit(self, known: _Pod) -> None:
        if known.node.fault in _REFUSED:
            self.exit(known.pod, _REFUSED[known.node.fault], disrupted=True)
            return
        if self._fault_schedule.hit(FaultKind.POD_REFUSED):
            self._refused += 1
            refusal = REFUSALS[self._refused % len(REFUSALS)]
            self.exit(known.pod, refusal, disrupted=True)
            return
        known.stage = Stage.WAITING
        self._report(known)
        self._later(PULL, known, self._pulled)

    def _pulled(self, known: _Pod) -> None:
        if known.node.fault is NodeFault.PULL_DENIED:
            known.stage = Stage.DENIED
            self._report(known)
            self._later(PULL_AGAIN, known, self._pulled)
            return
        failing = known.stage is Stage.BACK_OFF or self._fault_schedule.hit(FaultKind.IMAGE_PULL)
        if failing and self._fault_schedule.active(FaultKind.IMAGE_PULL):
            known.stage = Stage.BACK_OFF
            self._report(known)
            self._later(PULL_AGAIN, known, self._pulled)
            return
        self._create(known)

    def _create(self, known: _Pod) -> None:
        fault = known.node.fault
        if fault is NodeFault.START_FAILS:
            self.exit(known.pod, START_FAILED, disrupted=True)
            return
        known.stage = Stage.NOT_CREATED if fault is NodeFault.CREATE_FAILS else Stage.RUNNING
        self._report(known)
        if known.stage is Stage.NOT_CREATED:
            self._later(CREATE_AGAIN, known, self._create)
        elif fault in _TAKEN:
            end = _TAKEN[fault]
            self._later(TAKEN_AFTER, known, lambda one: self.exit(one.pod, end, disrupted=True))
        else:
            self._containers.start(known.pod, fault is not NodeFault.CHECKS_FAIL)

    def _end(self, known: _Pod, end: End) -> None:
        if known.end is not None:
            return
        _stop_timers(known)
        known.end, known.stage = end, Stage.ENDED
        self._containers.ended(known.pod, end, known.disrupted)
        self._report(known)
        self._look(known)

    def _report(self, known: _Pod) -> None:
        """Write the pod's status, if its node reaches the API server."""
        current = self._registry.current(known.pod)
        if current is None or not (known.node.connected and known.node.alive):
            return
        status = kubelet_status(current, known.stage, known.end)
        if known.end is EVICTED:
            moment = self._registry.moment
            status["conditions"] = with_disruption(status, "TerminationByKubelet", moment)
        if any(current["status"].get(key) != value for key, value in status.items()):
            self._registry.change(current, status=status)

    def _remove(self, known: _Pod) -> None:
        """Delete the ended pod without grace, as kubelet does when nothing of it is left."""
        current = self._registry.current(known.pod)
        del self._pods[known.pod["metadata"]["uid"]]
        if current is not None:
            self._registry.remove(current)

    def _later(self, seconds: Seconds, known: _Pod, step: Callable[[_Pod], None]) -> None:
        loop = asyncio.get_running_loop()
        known.timers.append(loop.call_later(seconds, step, known))


def _allocates_again(known: _Pod) -> bool:
    """Return whether a container of a pod has devices and does not run: it waits, or has ended."""
    waits = known.stage is not Stage.RUNNING and _has_devices(known.pod, "containers")
    return waits or _has_devices(known.pod, "initContainers")


def _has_devices(pod: Object, kind: str) -> bool:
    return any(devices(one) for one in pod["spec"].get(kind) or ())


def _stop_timers(known: _Pod) -> None:
    for timer in known.timers:
        timer.cancel()
    known.timers.clear()
