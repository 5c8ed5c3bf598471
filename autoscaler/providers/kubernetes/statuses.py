"""Says why a pod ended or does not start, in the provider's failure classes. Pure.

Sources: Kubernetes documentation, "Pod Lifecycle", "Disruptions" (condition DisruptionTarget) and
"Node-pressure Eviction"; kubelet's `pkg/kubelet/images/types.go`, `pkg/kubelet/container/sync_result.go`,
`pkg/kubelet/lifecycle/predicate.go`, `pkg/kubelet/cm/admission/errors.go` and
`pkg/kubelet/cm/topologymanager/scope.go`.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from autoscaler.model.failures import FailureClass, FailureScope
from autoscaler.model.identifiers import Instant

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
        "TaintToleration",
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

_HOPELESS = frozenset({"InvalidImageName", "ErrImageNeverPull"}) | _CONTAINER

_PULL_REFUSED = re.compile(
    r"not found|manifest unknown|no match for platform|unauthorized|authorization failed|"
    r"authentication required|denied",
    re.IGNORECASE,
)
"""Answers of registries that another pull does not change: there is no such image, or no right to read it.

The message of a back-off has the runtime's error (`pkg/kubelet/images/image_manager.go`, `prevPullErrMsg`), and
this has the registry's (containerd, `core/remotes/docker/resolver.go`). After a time-out, 5xx or 429 a later
pull may succeed. Old kubelets name no error.
"""

CRASH_LOOP = "CrashLoopBackOff"

_RESTARTS = 3
"""Number of restarts after which a sidecar counts as failed. Kubelet waits 10, 20, 40 s and so on between them
(Kubernetes documentation, "Pod Lifecycle": container restarts)."""

UNSCHEDULABLE = "Unschedulable"

_CLAIM_COMES = re.compile(
    "waiting for ephemeral volume controller|unbound immediate PersistentVolumeClaims"
)
"""What the scheduler says of a pod whose claim is being created or bound (kubernetes/kubernetes#104525)."""

OUT_OF_MEMORY = "OOMKilled"


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
    `disrupted`: it runs or starts, and the cluster has announced its deletion.
    `unschedulable`: no node has room for it now. `pulling`: kubelet could not pull an image, and tries again.
    `refused`: it cannot start until an operator changes something.
    """

    state: str
    finding: Finding | None = None
    terminated: bool = False
    leaving: bool = False
    disrupted: bool = False
    unschedulable: bool = False
    pulling: bool = False
    refused: bool = False


def pod_state(pod: Mapping[str, Any]) -> PodState:
    """Return the state of a pod, as the API server shows it."""
    status = pod.get("status") or {}
    phase = status.get("phase") or "Pending"
    disrupted = _disruption(status)
    if phase in ("Failed", "Succeeded"):
        return PodState(phase, disrupted or _end(pod, status, phase), terminated=True)
    if pod.get("metadata", {}).get("deletionTimestamp"):
        node = _text((pod.get("spec") or {}).get("nodeName"))
        waits = _pending(status).finding if phase == "Pending" else None
        return PodState("Terminating", _deleted(disrupted, waits, node), leaving=True)
    if phase == "Pending" and disrupted is None:
        return _pending(status)
    return PodState(phase, disrupted, disrupted=disrupted is not None)


def _pending(status: Mapping[str, Any]) -> PodState:
    scheduled = _condition(status, "PodScheduled")
    if scheduled.get("status") == "False":
        code = _text(scheduled.get("reason")) or UNSCHEDULABLE
        message = _text(scheduled.get("message"))
        finding = Finding(code, message, FailureClass.CAPACITY)
        # A nominated node has room once the pods that this one preempts have ended.
        soon = status.get("nominatedNodeName") or _CLAIM_COMES.search(message)
        return PodState(code, finding, unschedulable=code == UNSCHEDULABLE and not soon)
    for one in _containers(status):
        found = _waiting(one)
        if found is not None:
            return found
    return PodState("Pending")


def _waiting(container: Mapping[str, Any]) -> PodState | None:
    """Return the state of a pod whose container does not start, or None if it does."""
    waiting = _state(container).get("waiting") or {}
    code, said = _text(waiting.get("reason")), _text(waiting.get("message"))
    message = f"container {_text(container.get('name'))}: {said}"
    finding = Finding(code, message, FailureClass.CONFIGURATION)
    if code in _HOPELESS:
        return PodState(code, finding, refused=True)
    if code in _IMAGE:
        # The first failed pull is no back-off yet.
        refused = code == "ImagePullBackOff" and _PULL_REFUSED.search(said) is not None
        return PodState(code, finding, pulling=not refused, refused=refused)
    if code == CRASH_LOOP:
        last = (container.get("lastState") or {}).get("terminated") or {}
        ended = finding._replace(message=f"{message}; it ended with status {last.get('exitCode')}")
        return PodState(code, ended, refused=int(container.get("restartCount") or 0) >= _RESTARTS)
    return None


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


def disrupted_at(pod: Mapping[str, Any]) -> Instant | None:
    """Return when the condition DisruptionTarget was set, by the cluster's clock, or None if unknown."""
    condition = _condition(pod.get("status") or {}, "DisruptionTarget")
    try:
        return datetime.fromisoformat(_text(condition.get("lastTransitionTime"))).timestamp()
    except ValueError:
        return None


def _sidecars(pod: Mapping[str, Any]) -> frozenset[str]:
    """Return the init containers that run as long as the others: their exit status says nothing of the pod."""
    found = (pod.get("spec") or {}).get("initContainers") or ()
    return frozenset(_text(one.get("name")) for one in found if one.get("restartPolicy"))


def _end(pod: Mapping[str, Any], status: Mapping[str, Any], phase: str) -> Finding:
    """Return why a pod ended that nothing disrupted."""
    code, sidecars = _text(status.get("reason")), _sidecars(pod)
    if code in _NO_ROOM or code.startswith("OutOf"):
        return Finding(code, _text(status.get("message")), FailureClass.CAPACITY)
    if code:
        return Finding(code, _text(status.get("message")))
    for one in _containers(status):
        name, ended = _text(one.get("name")), _state(one).get("terminated") or {}
        if name in sidecars:
            continue
        reason, exit_code = _text(ended.get("reason")), ended.get("exitCode")
        if reason in ("StartError", "ContainerCannotRun"):
            message = f"container {name}: {_text(ended.get('message'))}"
            return Finding(reason, message, FailureClass.CONFIGURATION)
        if reason in _LOST_CONTAINERS:
            message = f"the node lost container {name}"
            return Finding(reason, message, FailureClass.CAPACITY, FailureScope.MACHINE)
        if reason == OUT_OF_MEMORY or exit_code not in (0, None):
            message = f"container {name} ended with status {exit_code}"
            if reason == OUT_OF_MEMORY:
                message += f", {_memory(pod, name)}"
            return Finding(reason or "Error", message)
    return Finding(phase, "")


def _memory(pod: Mapping[str, Any], name: str) -> str:
    """Return what limited the memory of a container that the kernel killed."""
    spec = pod.get("spec") or {}
    for one in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        limit = ((one.get("resources") or {}).get("limits") or {}).get("memory")
        if one.get("name") == name and limit:
            return f"at its memory limit of {_text(limit)}"
    return "without a memory limit of its own: its node had no memory left"


def _containers(status: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for kind in ("initContainerStatuses", "containerStatuses"):
        yield from status.get(kind) or ()


def _state(container: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = container.get("state") or {}
    return found


def _condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    for one in status.get("conditions") or ():
        if one.get("type") == kind:
            found: Mapping[str, Any] = one
            return found
    return {}


def _text(value: object) -> str:
    """Return a text from the API server on one line, of bounded length."""
    return " ".join(str(value or "").split())[:MAX_REASON]
