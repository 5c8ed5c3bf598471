"""The nodes of a cluster, and which pods fit on them: the scheduler's filters, as far as pods here need them.

Sources: Kubernetes documentation, "Kubernetes Scheduler", "Assigning Pods to Nodes" (node affinity), "Taints
and Tolerations", "Nodes" (heartbeats).
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from autoscaler.simulator.world.cluster.registry import Object

HOSTNAME = "kubernetes.io/hostname"
UNREACHABLE = "node.kubernetes.io/unreachable"
ENDED = ("Succeeded", "Failed")
Usage = dict[str, Counter[str]]
"""What pods use, by node and resource."""


class NodeFault(StrEnum):
    """How a faulty node fails each pod."""

    REFUSES = "refuses"
    """Kubelet does not admit the pod: a device plugin has no healthy device."""
    START_FAILS = "start_fails"
    """The container cannot be started: the driver differs from its libraries."""
    CREATE_FAILS = "create_fails"
    """The container cannot be created, and kubelet tries again."""
    CHECKS_FAIL = "checks_fail"
    """The agent's health checks fail."""
    PULL_DENIED = "pull_denied"
    """The registry refuses the node's credentials."""
    SHUTS_DOWN = "shuts_down"
    """Kubelet does not admit the pod, because the node shuts down, and goes on doing so."""
    LOSES = "loses"
    """The container runtime loses the container soon after its start."""
    EVICTS = "evicts"
    """Kubelet evicts the pod soon after its start, because the node is low on disk."""


@dataclass(eq=False, slots=True)
class Node:
    """A node. `connected`: its kubelet reaches the API server. `alive`: its containers run.

    `restarting`: it is not alive, and will be. `ready` is what the node controller has written. `added`: a
    provisioner launched it. `fault`: how it fails its next pods.
    """

    name: str
    labels: Mapping[str, str]
    allocatable: Mapping[str, int]
    taints: tuple[Mapping[str, str], ...] = ()
    connected: bool = True
    alive: bool = True
    restarting: bool = False
    ready: bool = True
    cordoned: bool = False
    added: bool = False
    fault: NodeFault | None = None
    watched: bool = False
    """Whether its provisioner will look whether it is empty."""

    def shown(self) -> Object:
        """Return the Node object."""
        lost = () if self.ready else ({"key": UNREACHABLE, "effect": "NoExecute"},)
        return {
            "metadata": {"name": self.name, "labels": self.labels},
            "spec": {"taints": [*self.taints, *lost], "unschedulable": self.cordoned},
            "status": {
                "allocatable": {name: str(units) for name, units in self.allocatable.items()},
                "conditions": [{"type": "Ready", "status": "True" if self.ready else "Unknown"}],
            },
        }


@dataclass(frozen=True, slots=True)
class NodePool:
    """Equal nodes. A provisioner may add nodes, up to `most`; without one, `count` is all there are."""

    name: str
    count: int
    allocatable: Mapping[str, int]
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Mapping[str, str], ...] = ()
    most: int = 0

    def has(self, node: Node) -> bool:
        """Return whether a node is of this pool."""
        return node.name.rpartition("-")[0] == self.name

    def node(self, number: int, added: bool = False) -> Node:
        """Return a new node of the pool."""
        name = f"{self.name}-{number}"
        labels = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", **self.labels}
        labels[HOSTNAME] = name
        return Node(name, labels, self.allocatable, self.taints, added=added)


def devices(container: Object) -> dict[str, int]:
    """Return the extended resources of a container."""
    limits = (container.get("resources") or {}).get("limits") or {}
    return {name: int(units) for name, units in limits.items() if "/" in name}


def wants(pod: Object) -> Counter[str]:
    """Return what a pod needs of a node: extended resources, and one of its `pods`."""
    found = Counter({"pods": 1})
    for container in pod["spec"]["containers"]:
        found.update(devices(container))
    return found


def used(pods: Iterable[Object]) -> Usage:
    """Return what the pods of each node use. A pod that is being deleted still uses it."""
    found: Usage = {}
    for pod in pods:
        name = pod["spec"].get("nodeName")
        if name is not None and pod["status"]["phase"] not in ENDED:
            found.setdefault(name, Counter()).update(wants(pod))
    return found


def may_host(node: Node, pod: Object) -> bool:
    """Return whether a node accepts a pod, whatever it has left."""
    spec = pod["spec"]
    selector = spec.get("nodeSelector") or {}
    return (
        node.ready
        and not node.cordoned
        and all(node.labels.get(key) == value for key, value in selector.items())
        and is_required(node, pod)
        and all(_tolerated(taint, spec.get("tolerations") or ()) for taint in node.taints)
    )


def has_room(node: Node, pod: Object, taken: Usage) -> bool:
    """Return whether a node has enough left for a pod."""
    there = taken.get(node.name, Counter())
    return all(
        there[name] + units <= node.allocatable.get(name, 0) for name, units in wants(pod).items()
    )


def is_required(node: Node, pod: Object) -> bool:
    """Return whether a node matches a term of the pod's required node affinity, if it has one."""
    required = _node_affinity(pod).get("requiredDuringSchedulingIgnoredDuringExecution")
    return required is None or any(_matches(term, node) for term in required["nodeSelectorTerms"])


def score(node: Node, pod: Object) -> int:
    """Return the sum of the weights of the preferred terms that a node matches."""
    preferred = _node_affinity(pod).get("preferredDuringSchedulingIgnoredDuringExecution") or ()
    return sum(int(one["weight"]) for one in preferred if _matches(one["preference"], node))


def _node_affinity(pod: Object) -> Object:
    found: Object = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    return found


def _matches(term: Object, node: Node) -> bool:
    """Return whether a node's labels match all expressions of a term: In and NotIn, as pods here have."""
    return all(
        (node.labels.get(one["key"]) in one["values"]) is (one["operator"] == "In")
        for one in term["matchExpressions"]
    )


def _tolerated(taint: Mapping[str, str], tolerations: Iterable[Mapping[str, str]]) -> bool:
    return any(one.get("key") in (None, taint["key"]) for one in tolerations)
