"""Says why a pod ended, or what takes it from its node, in the provider's failure classes. Pure.

Sources: Kubernetes documentation, "Pod Lifecycle", "Disruptions" (condition DisruptionTarget) and
"Node-pressure Eviction"; kubelet's `pkg/kubelet/lifecycle/predicate.go`, `pkg/kubelet/cm/admission/errors.go`
and `pkg/kubelet/cm/topologymanager/scope.go`.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from autoscaler.model.identifiers import Instant
from autoscaler.model.machines.failures import FailureClass, FailureScope
from autoscaler.providers.kubernetes.api.texts import MAX_TEXT, one_line

_PREEMPTIONS = frozenset({"PreemptionByScheduler", "Preempting"})
"""Another pod needs the room: capacity is short."""

_DISRUPTIONS = frozenset({"Evicted", "NodeShutdown", "Terminated", "Shutdown", "NodeLost"})
"""The pod's own reason: node pressure, the node's shutdown, a lost node. It says nothing about other nodes."""

_NOT_ADMITTED = "Pod was rejected"
"""How the message of a pod begins that kubelet does not admit, whatever its reason (`rejectPod` in
`pkg/kubelet/kubelet.go`; "as the node is shutting down" in `nodeshutdown/nodeshutdown_manager.go`)."""

_OF_THE_NODE = "The node "
"""How the message of an eviction for node pressure begins (`pkg/kubelet/eviction/helpers.go`).

Kubelet also evicts a pod that exceeds its own limit of ephemeral storage, or the size of a volume. The job did
that, as with memory.
"""

_LOST_CONTAINERS = frozenset({"ContainerStatusUnknown", "Unknown"})
"""The node was restarted, or its container runtime lost the container. Kubelet writes the first, and containerd
the second with exit status 255 (`internal/cri/server/restart.go`)."""

_NO_ROOM = frozenset(
    {
        "UnexpectedAdmissionError",
        "NodeAffinity",
        "NodeName",
        "NodePorts",
        "TopologyAffinityError",
        "SMTAlignmentError",
        "TaintToleration",
    }
)
"""Kubelet's refusals of a pod that the scheduler put on its node. A device plugin without a healthy device
gives UnexpectedAdmissionError, and devices on another NUMA node TopologyAffinityError. `OutOfcpu` and
`OutOfnvidia.com/gpu` begin with `OutOf`."""

_FAILED_CHECKS = re.compile(r"the health checks failed: [a-z_, ]{1,200}")
"""What the agent logs before it ends (`agent/lifecycle.py`). Kubelet copies the end of the log into the status
of the failed container (Kubernetes documentation, "Determine the Reason for Pod Failure")."""

OUT_OF_MEMORY = "OOMKilled"


class Finding(NamedTuple):
    """Why a pod ended or does not start. `failure` is None if it says nothing about the next launch.

    `scope` is `machine` if it says nothing about other nodes, and `host` if its node may be faulty.
    """

    code: str
    message: str
    failure: FailureClass | None = None
    scope: FailureScope | None = None

    @property
    def text(self) -> str:
        """Return `code: message`, of bounded length."""
        return f"{self.code}: {self.message}"[:MAX_TEXT] if self.message else self.code


def disruption(status: Mapping[str, Any]) -> Finding | None:
    """Return what took the pod from its node. The pod's own reason is more exact than the condition."""
    code, text = one_line(status.get("reason")), one_line(status.get("message"))
    if code in _DISRUPTIONS and text.startswith(_NOT_ADMITTED):
        # A pod that tolerates the taint of this node would come back to it at once: see `_NO_ROOM`.
        return Finding(code, text, FailureClass.CAPACITY, FailureScope.HOST)
    if code == "Evicted" and not text.startswith(_OF_THE_NODE):
        return Finding(code, text)
    if code not in _PREEMPTIONS | _DISRUPTIONS:
        found = condition(status, "DisruptionTarget")
        if found.get("status") != "True":
            return None
        # Kubernetes adds reasons, and the condition alone says that the pod did not end by itself.
        code = one_line(found.get("reason")) or "DisruptionTarget"
        text = one_line(found.get("message"))
    if code in _PREEMPTIONS:
        return Finding(code, text, FailureClass.CAPACITY)
    scope = FailureScope.HOST if code == "Evicted" else FailureScope.MACHINE
    return Finding(code, text, FailureClass.CAPACITY, scope)


def disrupted_at(pod: Mapping[str, Any]) -> Instant | None:
    """Return when the condition DisruptionTarget was set, by the cluster's clock, or None if unknown."""
    found = condition(pod.get("status") or {}, "DisruptionTarget")
    try:
        return datetime.fromisoformat(one_line(found.get("lastTransitionTime"))).timestamp()
    except ValueError:
        return None


def is_disruption_revoked(pod: Mapping[str, Any]) -> bool:
    """Return True if the cluster has set the condition DisruptionTarget to False: the pod is not deleted.

    An answer without the condition may be older than one with it.
    """
    return condition(pod.get("status") or {}, "DisruptionTarget").get("status") == "False"


def is_not_admitted(found: Finding) -> bool:
    """Return whether kubelet refused the pod. It admits all pods of its node again when it starts.

    `rejectPod` keeps nothing of the pod's last status, so a pod that has run looks like one that has not.
    """
    text = found.message.startswith(_NOT_ADMITTED)
    return text or found.code in _NO_ROOM or found.code.startswith("OutOf")


def pod_end(pod: Mapping[str, Any], status: Mapping[str, Any], phase: str) -> Finding:
    """Return why a pod ended that nothing disrupted."""
    code, sidecars = one_line(status.get("reason")), _sidecars(pod)
    message = one_line(status.get("message"))
    if code in _NO_ROOM or code.startswith("OutOf") or message.startswith(_NOT_ADMITTED):
        return Finding(code or "Rejected", message, FailureClass.CAPACITY, FailureScope.HOST)
    if code:
        return Finding(code, message)
    for one in containers(status):
        name, ended = one_line(one.get("name")), _state(one).get("terminated") or {}
        if name not in sidecars and (found := _container_end(pod, name, ended)) is not None:
            return found
    return Finding(phase, "")


def _container_end(pod: Mapping[str, Any], name: str, ended: Mapping[str, Any]) -> Finding | None:
    """Return why a container ended, or None if it succeeded. Before the pod is ready, its node counts first."""
    reason, exit_code = one_line(ended.get("reason")), ended.get("exitCode")
    said = str(ended.get("message") or "")
    if reason in ("StartError", "ContainerCannotRun"):
        message = f"container {name}: {one_line(said)}"
        return Finding(reason, message, FailureClass.CONFIGURATION, FailureScope.HOST)
    if reason in _LOST_CONTAINERS:
        message = f"the node lost container {name}"
        return Finding(reason, message, FailureClass.CAPACITY, FailureScope.HOST)
    message = f"container {name} ended with status {exit_code}"
    if reason == OUT_OF_MEMORY and (limit := _memory_limit(pod, name)):
        # The job, or the agent, needs more memory than the pod has.
        return Finding(reason, f"{message}, at its memory limit of {limit}")
    if reason == OUT_OF_MEMORY:
        message += ", without a memory limit of its own: its node had no memory left"
    elif exit_code in (0, None):
        return None
    elif failed := _FAILED_CHECKS.search(said):
        message += f", {failed.group()}"
    return Finding(reason or "Error", message, None, FailureScope.HOST)


def _memory_limit(pod: Mapping[str, Any], name: str) -> str:
    """Return the memory limit of a container, or an empty text if it has none."""
    spec = pod.get("spec") or {}
    for one in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        limit = ((one.get("resources") or {}).get("limits") or {}).get("memory")
        if one.get("name") == name and limit:
            return one_line(limit)
    return ""


def _sidecars(pod: Mapping[str, Any]) -> frozenset[str]:
    """Return the init containers that run as long as the others: their exit status says nothing of the pod."""
    found = (pod.get("spec") or {}).get("initContainers") or ()
    return frozenset(
        one_line(one.get("name")) for one in found if one.get("restartPolicy") == "Always"
    )


def containers(status: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the statuses of a pod's init containers, and of the others."""
    for kind in ("initContainerStatuses", "containerStatuses"):
        yield from status.get(kind) or ()


def _state(container: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = container.get("state") or {}
    return found


def condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """Return a condition of a pod's status, or an empty mapping."""
    for one in status.get("conditions") or ():
        if one.get("type") == kind:
            found: Mapping[str, Any] = one
            return found
    return {}
