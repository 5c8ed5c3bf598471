"""The node controllers of a simulated cluster, and what disrupts its pods and nodes.

Sources: Kubernetes documentation, "Disruptions", "Taint based Evictions" (300 seconds),
"Nodes" (`node-monitor-grace-period`), "Pod Lifecycle": garbage collection of pods.
"""

import asyncio
import itertools
from collections.abc import Callable, Sequence

from autoscaler.model.identifiers import Seconds
from autoscaler.simulator.world.cluster.api_server import ApiServer
from autoscaler.simulator.world.cluster.kubelet import EVICTED, OUT_OF_MEMORY, Kubelets
from autoscaler.simulator.world.cluster.nodes import ENDED, Node, NodeFault, NodePool
from autoscaler.simulator.world.cluster.registry import Object, Registry
from autoscaler.simulator.world.cluster.scheduler import Scheduler
from autoscaler.simulator.world.cluster.statuses import with_condition, with_disruption
from autoscaler.simulator.world.fault_schedule import FaultSchedule
from autoscaler.simulator.world.schedule import Fault, FaultKind

NOT_READY_AFTER: Seconds = 50.0
"""The node controller's grace period for a node without heartbeats."""

TAINT_EVICTS_AFTER: Seconds = 300.0
"""The toleration for unreachable nodes that admission adds to each pod."""

OTHERS = "training"
"""The namespace of pods that have nothing to do with runners."""


OF_CLUSTERS = frozenset(
    {
        FaultKind.API_DOWN,
        FaultKind.WATCH_EXPIRED,
        FaultKind.POD_EVICTED,
        FaultKind.POD_PREEMPTED,
        FaultKind.POD_OUT_OF_MEMORY,
        FaultKind.NODE_DRAINED,
        FaultKind.NODE_LOST,
        FaultKind.NODE_DIED,
        FaultKind.KUBELET_RESTARTED,
        FaultKind.NODE_RESTARTED,
        FaultKind.NODES_TAKEN,
        FaultKind.NODE_FAULTY,
    }
)
"""The faults that a cluster begins at one moment. Its other parts ask the fault schedule."""


class ControlPlane:
    """Begins faults of pods and nodes, and does what the controllers of the cluster do about them."""

    def __init__(
        self,
        registry: Registry,
        nodes: dict[str, Node],
        pools: Sequence[NodePool],
        api: ApiServer,
        kubelets: Kubelets,
        scheduler: Scheduler,
        fault_schedule: FaultSchedule,
    ) -> None:
        self._registry = registry
        self._nodes = nodes
        self._pools = pools
        self._api = api
        self._kubelets = kubelets
        self._fault_schedule = fault_schedule
        self._scheduler = scheduler
        self._numbers = itertools.count(1)

    def begin(self, fault: Fault, own: Sequence[Object]) -> None:
        """Begin a fault. `own` are the fleet's pods that exist."""
        bound = [pod for pod in own if self._kubelets.runs(pod)]
        if fault.kind is FaultKind.NODES_TAKEN:
            self._take_nodes(fault)
        elif fault.kind is FaultKind.NODE_FAULTY and self._nodes:
            self._break_node(fault)
        elif fault.kind is FaultKind.WATCH_EXPIRED:
            self._registry.drop_history()
        elif fault.kind is FaultKind.API_DOWN:
            self._registry.wake()
            return  # the API server counts the requests that it refuses
        elif bound:
            self._disrupt(fault, bound[fault.target % len(bound)])
        else:
            return
        self._fault_schedule.hits[fault.kind] += 1

    def _disrupt(self, fault: Fault, pod: Object) -> None:
        node = self._nodes[pod["spec"]["nodeName"]]
        match fault.kind:
            case FaultKind.POD_EVICTED:
                self._kubelets.exit(pod, EVICTED, disrupted=True)
            case FaultKind.POD_OUT_OF_MEMORY:
                self._kubelets.exit(pod, OUT_OF_MEMORY)
            case FaultKind.POD_PREEMPTED:
                self._take_nodes(fault, 1)
                self._delete(pod, "PreemptionByScheduler")
            case FaultKind.NODE_DRAINED:
                node.cordoned = True
                self._later(fault.lasts, lambda: self._uncordon(node))
                for one in self._on(node):
                    self._delete(one, "EvictionByEvictionAPI")
            case FaultKind.NODE_LOST:
                self._lose(node)
                self._later(fault.lasts, lambda: self._reconnect(node))
            case FaultKind.KUBELET_RESTARTED:
                self._kubelets.restarted(node)
            case FaultKind.NODE_RESTARTED:
                node.alive, node.restarting = False, True
                self._lose(node)
                self._kubelets.node_restarts(node)
                self._later(fault.lasts, lambda: self._restarted(node))
            case FaultKind.NODE_DIED:
                node.alive = node.restarting = False
                self._lose(node)
                self._kubelets.node_died(node)
                self._later(fault.lasts, lambda: self._replace(node))

    def _break_node(self, fault: Fault) -> None:
        """Let a node fail its next pods in one way, until the fault is over."""
        nodes, ways = list(self._nodes.values()), list(NodeFault)
        node = nodes[fault.target // len(ways) % len(nodes)]
        node.fault = ways[fault.target % len(ways)]
        self._later(fault.lasts, lambda: setattr(node, "fault", None))

    def remove_node(self, name: str) -> None:
        """Delete a node, as an administrator does. No other node replaces it."""
        self._collect_pods_of(self._nodes.pop(name))

    def _delete(self, pod: Object, reason: str) -> None:
        """Delete a pod as a disruption: first the condition, then the deletion."""
        current = self._registry.current(pod)
        if current is None or current["status"]["phase"] in ENDED:
            return
        self._kubelets.disrupt(current)
        text, moment = "the cluster needs its place", self._registry.moment
        conditions = with_disruption(current["status"], reason, moment, text)
        self._api.delete(self._registry.change(current, status={"conditions": conditions}))

    def _lose(self, node: Node) -> None:
        node.connected = False
        self._later(NOT_READY_AFTER, lambda: self._not_ready(node))

    def _not_ready(self, node: Node) -> None:
        if node.connected or node.name not in self._nodes:
            return
        node.ready = False
        for pod in self._on(node):
            if pod["status"]["phase"] not in ENDED:
                content = {"status": "False", "reason": "NodeNotReady"}
                conditions = with_condition(pod["status"], "Ready", content)
                self._registry.change(pod, status={"conditions": conditions})
        self._later(TAINT_EVICTS_AFTER, lambda: self._evict_from(node))

    def _evict_from(self, node: Node) -> None:
        if not node.connected and node.name in self._nodes:
            for pod in self._on(node):
                self._delete(pod, "DeletionByTaintManager")

    def _reconnect(self, node: Node) -> None:
        if node.alive:
            node.connected = node.ready = True
            self._kubelets.connected_again(node)
            self._scheduler.schedule_soon()

    def _restarted(self, node: Node) -> None:
        if node.restarting:
            node.alive, node.restarting = True, False
            self._reconnect(node)

    def _replace(self, node: Node) -> None:
        """Delete a dead node."""
        if self._nodes.pop(node.name, None) is None:
            return
        self._collect_pods_of(node)
        if not node.added:
            self._scheduler.add_node(next(pool for pool in self._pools if pool.has(node)))

    def _collect_pods_of(self, node: Node) -> None:
        """Delete the pods of a node that does not exist any more by force, as the garbage collection does."""
        for pod in self._on(node):
            if pod["status"]["phase"] not in ENDED:
                moment = self._registry.moment
                conditions = with_disruption(pod["status"], "DeletionByPodGC", moment, "no node")
                status = {"phase": "Failed", "conditions": conditions}
                pod = self._registry.change(pod, status=status)
            self._registry.remove(pod)

    def _uncordon(self, node: Node) -> None:
        node.cordoned = False
        self._scheduler.schedule_soon()

    def _take_nodes(self, fault: Fault, nodes: int = 0) -> None:
        """Create pods of others that fill nodes, and delete these pods when the fault is over."""
        pool = self._pools[fault.target % len(self._pools)]
        gpus = {name: str(units) for name, units in pool.allocatable.items() if "/" in name}
        each = 1 if gpus else pool.allocatable["pods"]
        spec = {
            "containers": [{"name": "main", "resources": {"limits": gpus}}],
            "nodeSelector": dict(pool.labels),
            "tolerations": [{"operator": "Exists"}],
        }
        taken = []
        for _ in range(each * (nodes or max(pool.count, 1))):
            metadata = {"namespace": OTHERS, "name": f"{OTHERS}-{next(self._numbers)}"}
            taken.append(self._registry.create({"metadata": metadata, "spec": spec}))
        self._later(fault.lasts, lambda: self._give_back(taken))

    def _give_back(self, pods: Sequence[Object]) -> None:
        for pod in pods:
            current = self._registry.current(pod)
            if current is not None:
                self._registry.remove(current)

    def _on(self, node: Node) -> list[Object]:
        return [
            pod for pod in self._registry.pods.values() if pod["spec"].get("nodeName") == node.name
        ]

    def _later(self, seconds: Seconds, step: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(seconds, step)
