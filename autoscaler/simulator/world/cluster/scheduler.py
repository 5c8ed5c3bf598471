"""The scheduler of a simulated cluster, and the provisioner that adds nodes for pods without one.

Sources: Kubernetes documentation, "Kubernetes Scheduler"; Karpenter documentation, "Scheduling" and
"Disruption" (empty nodes are removed).
"""

import asyncio
import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from autoscaler.model.identifiers import Seconds
from autoscaler.simulator.world.cluster.kubelet import Kubelets
from autoscaler.simulator.world.cluster.nodes import (
    ENDED,
    Node,
    NodePool,
    Usage,
    has_room,
    may_host,
    score,
    used,
    wants,
)
from autoscaler.simulator.world.cluster.registry import Object, Registry
from autoscaler.simulator.world.cluster.statuses import unschedulable, with_condition
from autoscaler.simulator.world.fault_schedule import FaultSchedule
from autoscaler.simulator.world.schedule import FaultKind

AFTER: Seconds = 0.2
NODE_BOOTS: Seconds = 90.0
"""How long the provisioner takes to add a node."""

TRIES_AGAIN: Seconds = 30.0
EMPTY_FOR: Seconds = 300.0
"""How long the provisioner keeps a node without pods."""


class Scheduler:
    """Binds pods to nodes, soon after something has changed. `nodes` are shared with the API server."""

    def __init__(
        self,
        registry: Registry,
        nodes: dict[str, Node],
        pools: Sequence[NodePool],
        kubelets: Kubelets,
        fault_schedule: FaultSchedule,
    ) -> None:
        self._registry = registry
        self._nodes = nodes
        self._pools = pools
        self._kubelets = kubelets
        self._fault_schedule = fault_schedule
        self._numbers = itertools.count(1)
        self._coming = dict.fromkeys((pool.name for pool in pools), 0)
        self._soon_already = False
        self._tries_again = False
        registry.listeners.append(self._changed)
        for pool in pools:
            for _ in range(pool.count):
                self.add_node(pool)

    def add_node(self, pool: NodePool, added: bool = False) -> None:
        """Add a node to a pool."""
        node = pool.node(next(self._numbers), added)
        self._nodes[node.name] = node
        self.schedule_soon()

    def schedule_soon(self) -> None:
        """Try to bind the pods without a node."""
        if not self._soon_already:
            self._soon_already = True
            _later(AFTER, self._pass)

    def _changed(self, pod: Object | None, last: Object) -> None:
        """Run if a pod came, went or ended."""
        if pod is None or "nodeName" not in last["spec"] or last["status"]["phase"] in ENDED:
            self.schedule_soon()

    def _pass(self) -> None:
        taken = used(self._registry.pods.values())
        waiting = [
            pod
            for pod in list(self._registry.pods.values())
            if "nodeName" not in pod["spec"] and not self._bound(pod, taken)
        ]
        for pool in self._pools:
            if pool.most:
                self._provision(pool, waiting)
                self._watch_empty_nodes(pool, taken)
        self._soon_already = False

    def _bound(self, pod: Object, taken: Usage) -> bool:
        """Bind a pod, or write why it waits."""
        hosts = [node for node in self._nodes.values() if may_host(node, pod)]
        free = [node for node in hosts if has_room(node, pod, taken)]
        node = max(free, key=lambda one: score(one, pod), default=None)
        if node is None:
            total = f"0/{len(self._nodes)} nodes are available"
            self._write(pod, unschedulable(f"{total}: {len(hosts)} Insufficient resources."))
            return False
        self._write(pod, {"status": "True"}, node)
        taken.setdefault(node.name, Counter()).update(wants(pod))
        return True

    def _write(self, pod: Object, content: dict[str, str], node: Node | None = None) -> Object:
        status = pod["status"]
        if {"type": "PodScheduled", **content} in (status.get("conditions") or ()):
            return pod
        conditions = with_condition(status, "PodScheduled", content)
        spec = {"nodeName": node.name} if node is not None else None
        written = self._registry.change(pod, spec=spec, status={"conditions": conditions})
        if node is not None:
            self._kubelets.bound(written, node)
        return written

    def _provision(self, pool: NodePool, waiting: Sequence[Object]) -> None:
        """Order the nodes that a pool's waiting pods need."""
        template = pool.node(0)
        fitting = [pod for pod in waiting if may_host(template, pod)]
        if not fitting:
            return
        if not self._tries_again:
            self._tries_again = True
            _later(TRIES_AGAIN, self._try_again)
        if self._fault_schedule.hit(FaultKind.NO_NEW_NODES):
            return
        needed = math.ceil(len(fitting) / min(pool.allocatable.values()))
        there = sum(pool.has(node) for node in self._nodes.values()) + self._coming[pool.name]
        for _ in range(min(needed - self._coming[pool.name], pool.most - there)):
            self._coming[pool.name] += 1
            _later(NODE_BOOTS, lambda: self._arrived(pool))

    def _try_again(self) -> None:
        self._tries_again = False
        self.schedule_soon()

    def _arrived(self, pool: NodePool) -> None:
        self._coming[pool.name] -= 1
        self.add_node(pool, added=True)

    def _watch_empty_nodes(self, pool: NodePool, taken: Usage) -> None:
        for node in self._nodes.values():
            if pool.has(node) and node.added and node.name not in taken and not node.watched:
                node.watched = True
                _later(EMPTY_FOR, partial(self._remove_if_empty, node))

    def _remove_if_empty(self, node: Node) -> None:
        node.watched = False
        if node.name not in used(self._registry.pods.values()):
            self._nodes.pop(node.name, None)


def _later(seconds: Seconds, step: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_later(seconds, step)
