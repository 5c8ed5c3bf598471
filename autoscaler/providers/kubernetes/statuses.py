"""Says why a pod ended or does not start, in the provider's failure classes. Pure.

Sources: Kubernetes documentation, "Pod Lifecycle", "Disruptions" (condition DisruptionTarget) and
"Node-pressure Eviction"; kubelet's `pkg/kubelet/images/types.go`, `pkg/kubelet/container/sync_result.go`,
`pkg/kubelet/lifecycle/predicate.go`, `pkg/kubelet/cm/admission/errors.go` and
`pkg/kubelet/cm/topologymanager/scope.go`.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from autoscaler.model.failures import FailureClass, FailureScope

MAX_REASON = 500
"""Characters kept of any message from outside."""

_PREEMPTIONS = frozenset({"PreemptionByScheduler", "Preempting"})
"""Another pod needs the room: capacity is short."""

_DISRUPTIONS = frozenset(
    {
        # The condition DisruptionTarget.
        "DeletionByTaintManager",
        "EvictionByEvictionAPI",
        "DeletionByPodGC",
        "TerminationByKubelet",
        # The pod's own reason: node pressure, the node's shutdown, a lost node.
        "Evicted",
        "NodeShutdown",
        "Terminated",
        "Shutdown",
        "NodeLost",
    }
)
"""Something happens to the pod's node. This says nothing about other nodes."""

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
    }
)
"""Kubelet's refusals of a pod that the scheduler put on its node. A device plugin without a healthy device
gives UnexpectedAdmissionError, and devices on another NUMA node TopologyAffinityError. `OutOfcpu` and
`OutOfnvidia.com/gpu` begin with `OutOf`."""

_IMAGE = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "ImageInspectError",
        "RegistryUnavailable",
        "SignatureValidationFailed",
    }
)
_CONTAINER = frozenset(
    {"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "StartError"}
)

_HOPELESS = frozenset({"ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"}) | _CONTAINER

UNSCHEDULABLE = "Unschedulable"


class Finding(NamedTuple):
    """Why a pod ended or does not start. `failure` is None if it says nothing about the next launch.

    `scope` is `machine` if it says nothing about other nodes.
    """

    code: str
    message: str
    failure: FailureClass | None = None
    scope: FailureScope | None = None

    @property
    def text(self) -> str:
        """Return `code: message`, of bounded length."""
        return f"{self.code}: {self.message}"[:MAX_REASON] if self.message else self.code


class PodState(NamedTuple):
    """What a pod's status says: `state` for operators, and why it ended, leaves or does not start.

    `terminated`: no container of it runs any more. `leaving`: it was deleted, and its containers stop.
    `unschedulable`: no node has room for it now. `refused`: it cannot start until an operator changes
    something.
    """

    state: str
    finding: Finding | None = None
    terminated: bool = False
    leaving: bool = False
    unschedulable: bool = False
    refused: bool = False


def pod_state(pod: Mapping[str, Any]) -> PodState:
    """Return the state of a pod, as the API server shows it."""
    status = pod.get("status") or {}
    phase = status.get("phase") or "Pending"
    disrupted = _disruption(status)
    if phase in ("Failed", "Succeeded"):
        return PodState(phase, disrupted or _end(status, phase, _sidecars(pod)), terminated=True)
    if pod.get("metadata", {}).get("deletionTimestamp"):
        node = _text((pod.get("spec") or {}).get("nodeName"))
        waits = _pending(status).finding if phase == "Pending" else None
        return PodState("Terminating", _deleted(disrupted, waits, node), leaving=True)
    if phase == "Pending":
        return _pending(status)
    return PodState(phase)


def _pending(status: Mapping[str, Any]) -> PodState:
    scheduled = _condition(status, "PodScheduled")
    if scheduled.get("status") == "False":
        code = _text(scheduled.get("reason")) or UNSCHEDULABLE
        message = _text(scheduled.get("message"))
        finding = Finding(code, message, FailureClass.CAPACITY)
        return PodState(code, finding, unschedulable=code == UNSCHEDULABLE)
    for name, state in _containers(status):
        waiting = state.get("waiting") or {}
        code = _text(waiting.get("reason"))
        if code in _IMAGE or code in _CONTAINER:
            message = f"container {name}: {_text(waiting.get('message'))}"
            finding = Finding(code, message, FailureClass.CONFIGURATION)
            # Kubelet tries again after ErrImagePull and the like. A back-off means that this failed, too.
            return PodState(code, finding, refused=code in _HOPELESS)
    return PodState("Pending")


def _deleted(disrupted: Finding | None, waits: Finding | None, node: str) -> Finding:
    """Return why a pod is deleted, and what it waited for.

    Only its node's kubelet can end it: a lost node leaves it as it is.
    """
    found = disrupted or Finding("Deleted", "the pod was deleted")
    parts = [found.message]
    if waits is not None:
        parts.append(f"it waited: {waits.text}")
    if node:
        parts.append(f"node {node} has not confirmed its end yet")
    return found._replace(message="; ".join(parts))


def _disruption(status: Mapping[str, Any]) -> Finding | None:
    """Return what took the pod from its node. The pod's own reason is more exact than the condition."""
    condition = _condition(status, "DisruptionTarget")
    reasons = [(status.get("reason"), status.get("message"))]
    if condition.get("status") == "True":
        reasons.append((condition.get("reason"), condition.get("message")))
    for reason, message in reasons:
        code, text = _text(reason), _text(message)
        if code in _PREEMPTIONS:
            return Finding(code, text, FailureClass.CAPACITY)
        if code == "Evicted" and not text.startswith(_OF_THE_NODE):
            return Finding(code, text)
        if code in _DISRUPTIONS:
            return Finding(code, text, FailureClass.CAPACITY, FailureScope.MACHINE)
    return None


def _sidecars(pod: Mapping[str, Any]) -> frozenset[str]:
    """Return the init containers that run as long as the others: their exit status says nothing of the pod."""
    found = (pod.get("spec") or {}).get("initContainers") or ()
    return frozenset(_text(one.get("name")) for one in found if one.get("restartPolicy"))


def _end(status: Mapping[str, Any], phase: str, sidecars: frozenset[str]) -> Finding:
    """Return why a pod ended that nothing disrupted."""
    code = _text(status.get("reason"))
    if code in _NO_ROOM or code.startswith("OutOf"):
        return Finding(code, _text(status.get("message")), FailureClass.CAPACITY)
    if code:
        return Finding(code, _text(status.get("message")))
    for name, state in _containers(status):
        if name in sidecars:
            continue
        ended = state.get("terminated") or {}
        reason, exit_code = _text(ended.get("reason")), ended.get("exitCode")
        if reason in ("StartError", "ContainerCannotRun"):
            message = f"container {name}: {_text(ended.get('message'))}"
            return Finding(reason, message, FailureClass.CONFIGURATION)
        if reason in _LOST_CONTAINERS:
            message = f"the node lost container {name}"
            return Finding(reason, message, FailureClass.CAPACITY, FailureScope.MACHINE)
        if reason == "OOMKilled" or exit_code not in (0, None):
            message = f"container {name} ended with status {exit_code}"
            return Finding(reason or "Error", message)
    return Finding(phase, "")


def _containers(status: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for kind in ("initContainerStatuses", "containerStatuses"):
        for one in status.get(kind) or ():
            yield _text(one.get("name")), one.get("state") or {}


def _condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    for one in status.get("conditions") or ():
        if one.get("type") == kind:
            found: Mapping[str, Any] = one
            return found
    return {}


def _text(value: object) -> str:
    """Return a text from the API server on one line, of bounded length."""
    return " ".join(str(value or "").split())[:MAX_REASON]
