"""The statuses that kubelet, the scheduler and the controllers write. Pure.

Sources: Kubernetes documentation, "Pod Lifecycle" (phases, container states, conditions), "Disruptions"
(pod disruption conditions), "Node-pressure Eviction"; kubelet's `pkg/kubelet/status/generate.go`,
`pkg/kubelet/images/types.go` and `pkg/kubelet/lifecycle/predicate.go`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any
from zlib import crc32

from autoscaler.simulator.world.cluster.registry import Object


class Stage(Enum):
    """How far a pod is on its node."""

    BOUND = auto()
    """The node's kubelet has written nothing yet."""
    WAITING = auto()
    """The image is being pulled."""
    BACK_OFF = auto()
    """The image could not be pulled, twice, or the container could not be created."""
    DENIED = auto()
    """The registry refuses the image to this node."""
    NOT_CREATED = auto()
    """The container cannot be created, because of the node."""
    RUNNING = auto()
    """The container runs."""
    ENDED = auto()


@dataclass(frozen=True, slots=True)
class End:
    """How a pod's containers ended. `reason` and `message` are the pod's own, if kubelet gives any.

    `refused`: kubelet did not admit the pod, or not again.
    """

    exit_code: int = 0
    container_reason: str = "Completed"
    container_message: str = ""
    reason: str = ""
    message: str = ""
    refused: bool = False


def with_condition(
    status: Object, kind: str, content: Mapping[str, str]
) -> list[Mapping[str, str]]:
    """Return the conditions of a status with one added or replaced."""
    others = [one for one in status.get("conditions") or () if one["type"] != kind]
    return [*others, {"type": kind, **content}]


def with_disruption(
    status: Object, reason: str, moment: str, message: str = ""
) -> list[Mapping[str, str]]:
    """Return the conditions of a status with DisruptionTarget. If it was set before, it keeps its time."""
    before = [one for one in status.get("conditions") or () if one["type"] == "DisruptionTarget"]
    since = before[0]["lastTransitionTime"] if before else moment
    content = {"status": "True", "reason": reason, "message": message, "lastTransitionTime": since}
    return with_condition(status, "DisruptionTarget", content)


def unschedulable(message: str) -> dict[str, str]:
    """Return the content of the condition PodScheduled that the scheduler writes."""
    return {"status": "False", "reason": "Unschedulable", "message": message}


def kubelet_status(pod: Object, stage: Stage, end: End | None) -> dict[str, Any]:
    """Return what kubelet writes about a pod. It keeps the conditions of others."""
    if stage is Stage.BOUND:
        return {}
    if end is not None and end.refused:
        # Kubelet refuses the pod: it keeps neither its own conditions nor the containers of a pod that has run.
        status = pod["status"]
        others = [one for one in status.get("conditions") or () if one["type"] not in _OWN]
        left = {"conditions": others, "containerStatuses": []} if "conditions" in status else {}
        return {"phase": "Failed", "reason": end.reason, "message": end.message, **left}
    ready = "True" if stage is Stage.RUNNING else "False"
    conditions = [one for one in pod["status"].get("conditions") or () if one["type"] not in _OWN]
    conditions += [
        {"type": "Initialized", "status": "True"},
        {"type": "Ready", "status": ready},
        {"type": "ContainersReady", "status": ready},
    ]
    found: dict[str, Any] = {
        "phase": _phase(stage, end),
        "conditions": conditions,
        "containerStatuses": [
            {"name": one["name"], "state": _state(pod, stage, end)}
            for one in pod["spec"]["containers"]
        ],
    }
    if end is not None and end.reason:
        found |= {"reason": end.reason, "message": end.message}
    return found


_OWN = frozenset({"Initialized", "Ready", "ContainersReady"})


def _phase(stage: Stage, end: End | None) -> str:
    if end is not None:
        return "Failed" if end.exit_code or end.reason else "Succeeded"
    return "Running" if stage is Stage.RUNNING else "Pending"


_DENIED = {
    "reason": "ImagePullBackOff",
    "message": 'Back-off pulling image "runner:1": ErrImagePull: failed to resolve reference "runner:1": '
    "pull access denied, repository does not exist or may require authorization: server message: "
    "insufficient_scope: authorization failed",
}

_HELD_UP = (
    {
        "reason": "ImagePullBackOff",
        "message": 'Back-off pulling image "runner:1": ErrImagePull: failed to resolve reference "runner:1": '
        "runner:1: not found",
    },
    {
        "reason": "ImagePullBackOff",
        "message": 'Back-off pulling image "runner:1": ErrImagePull: failed to resolve reference "runner:1": '
        "failed to authorize: failed to fetch anonymous token: 401 Unauthorized",
    },
    {"reason": "CreateContainerError", "message": "context deadline exceeded"},
)
"""A registry without the image, one that fails for a time, and a busy node."""


def _state(pod: Object, stage: Stage, end: End | None) -> Object:
    if end is not None:
        return _terminated(end)
    if stage is Stage.NOT_CREATED:
        return {"waiting": {"reason": "CreateContainerError", "message": "no such device: nvidia0"}}
    if stage is Stage.DENIED:
        return {"waiting": _DENIED}
    if stage is Stage.BACK_OFF:
        # A pod keeps its reason, so that kubelet's report is the same each time.
        return {"waiting": _HELD_UP[crc32(pod["metadata"]["uid"].encode()) % len(_HELD_UP)]}
    running = stage is Stage.RUNNING
    return {"running": {}} if running else {"waiting": {"reason": "ContainerCreating"}}


def _terminated(end: End) -> Object:
    said = {"message": end.container_message} if end.container_message else {}
    return {"terminated": {"exitCode": end.exit_code, "reason": end.container_reason, **said}}
