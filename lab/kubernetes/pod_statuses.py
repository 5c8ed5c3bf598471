"""Makes the status of a pod as kubelet reports it. Pure.

Sources: kubelet's `pkg/kubelet/status/generate.go` (conditions), `pkg/kubelet/kubelet_pods.go` (`getPhase`,
`convertToAPIContainerStatuses`) and `pkg/kubelet/status/status_manager.go` (`mergePodStatus`), Kubernetes
documentation, "Pod Lifecycle" and "Sidecar Containers".
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

KILLED = 137
"""The exit status after SIGKILL: 128 plus the signal's number."""

CANNOT_START = 128
"""The exit status that runtimes report for a container whose command does not exist."""


@dataclass(slots=True)
class ContainerState:
    """What kubelet knows of one container. Times are RFC 3339. `exit_code` is None until it has ended.

    A `sidecar` is an init container that restarts. It is initialized while it runs.
    """

    name: str
    image: str
    init: bool
    sidecar: bool = False
    started: str | None = None
    finished: str | None = None
    exit_code: int | None = None
    reason: str = ""
    message: str = ""

    @property
    def succeeded(self) -> bool:
        """True if the container has ended with status 0."""
        return self.exit_code == 0

    @property
    def runs(self) -> bool:
        """True if the container has started and has not ended."""
        return self.started is not None and self.exit_code is None

    @property
    def ready(self) -> bool:
        """True if an init container has done its part, or another container runs. No probe is played."""
        return self.succeeded if self.init and not self.sidecar else self.runs

    def end(
        self, exit_code: int, at: str, *, out_of_memory: bool = False, message: str = ""
    ) -> None:
        """Record the end of the container's first process, and its termination message."""
        self.exit_code, self.finished, self.message = exit_code, at, message
        if out_of_memory:
            self.reason = "OOMKilled"
        elif exit_code == CANNOT_START and self.started is None:
            self.reason = "StartError"
        else:
            self.reason = "Completed" if exit_code == 0 else "Error"


def containers_of(pod: Mapping[str, Any]) -> list[ContainerState]:
    """Return the states of a pod's containers before any has started, init containers first."""
    spec = pod["spec"]
    return [
        ContainerState(
            one["name"], one["image"], init, init and one.get("restartPolicy") == "Always"
        )
        for key, init in (("initContainers", True), ("containers", False))
        for one in spec.get(key) or ()
    ]


def initialization_failed(containers: Iterable[ContainerState]) -> bool:
    """Return whether an init container has failed. The end of a sidecar is no failure."""
    return any(
        one.init and not one.sidecar and one.exit_code is not None and not one.succeeded
        for one in containers
    )


def phase_of(containers: Sequence[ContainerState]) -> str:
    """Return the phase of a pod with `restartPolicy: Never`.

    It is final only when no container runs any more, also no sidecar, whose exit status does not count.
    """
    main = [one for one in containers if not one.init]
    failed = initialization_failed(containers)
    over = failed or all(one.exit_code is not None for one in main)
    if over and not any(one.runs for one in containers):
        return "Succeeded" if not failed and all(one.succeeded for one in main) else "Failed"
    return "Running" if any(one.started for one in main) else "Pending"


def pod_status(
    containers: Sequence[ContainerState], started: str, now: str, host: str = "127.0.0.1"
) -> dict[str, Any]:
    """Return the status to report at `now`. `started` is when kubelet accepted the pod."""
    phase = phase_of(containers)
    return {
        "phase": phase,
        "startTime": started,
        "hostIP": host,
        "podIP": host,
        "conditions": [
            {**one, "lastTransitionTime": now} for one in _conditions(containers, phase)
        ],
        "initContainerStatuses": [_shown(one) for one in containers if one.init],
        "containerStatuses": [_shown(one) for one in containers if not one.init],
    }


def has_devices(spec: Mapping[str, Any]) -> bool:
    """Return whether a container has resources of a device plugin: their names have a domain."""
    limits = (spec.get("resources") or {}).get("limits") or {}
    return any("/" in name for name in limits)


def rejection() -> dict[str, Any]:
    """Return the status of a pod that kubelet refuses when it starts again.

    `rejectPod` in kubelet's pkg/kubelet/kubelet.go keeps nothing of the status before: None removes it.
    """
    return {
        "phase": "Failed",
        "reason": "UnexpectedAdmissionError",
        "message": "Pod was rejected: Allocate failed due to no healthy devices present",
        "initContainerStatuses": None,
        "containerStatuses": None,
    }


def without_trace(containers: Iterable[ContainerState], at: str) -> None:
    """Mark main containers that never ran as ended, as kubelet does when it has stopped their pod."""
    for one in containers:
        if not one.init and one.exit_code is None:
            one.exit_code, one.reason, one.finished = KILLED, "ContainerStatusUnknown", at


def _conditions(containers: Sequence[ContainerState], phase: str) -> list[dict[str, str]]:
    incomplete = [one.name for one in containers if one.init and not one.ready]
    main_started = any(one.started for one in containers if not one.init)
    lasting = [one for one in containers if one.sidecar or not one.init]
    unready = [one.name for one in lasting if not one.ready]
    initialized = {"type": "Initialized", "status": "True"}
    if phase == "Succeeded":
        initialized["reason"] = "PodCompleted"
    elif incomplete and not main_started:
        initialized = _false("Initialized", "ContainersNotInitialized", incomplete, "incomplete")
    if phase in ("Succeeded", "Failed"):
        reason = "PodCompleted" if phase == "Succeeded" else "PodFailed"
        ready = [
            {"type": kind, "status": "False", "reason": reason}
            for kind in ("Ready", "ContainersReady")
        ]
    elif unready:
        ready = [
            _false(kind, "ContainersNotReady", unready, "unready")
            for kind in ("Ready", "ContainersReady")
        ]
    else:
        ready = [{"type": kind, "status": "True"} for kind in ("Ready", "ContainersReady")]
    return [{"type": "PodReadyToStartContainers", "status": "True"}, initialized, *ready]


def _false(kind: str, reason: str, names: Sequence[str], word: str) -> dict[str, str]:
    message = f"containers with {word} status: [{' '.join(names)}]"
    return {"type": kind, "status": "False", "reason": reason, "message": message}


def _shown(one: ContainerState) -> dict[str, Any]:
    return {
        "name": one.name,
        "image": one.image,
        "imageID": one.image if one.started else "",
        "containerID": f"lab://{one.name}" if one.started else "",
        "restartCount": 0,
        "ready": one.ready,
        "started": one.runs,
        "state": _state(one),
    }


def _state(one: ContainerState) -> dict[str, Any]:
    if one.exit_code is not None:
        times = {"startedAt": one.started, "finishedAt": one.finished}
        message = {"message": one.message} if one.message else {}
        ended = {"exitCode": one.exit_code, "reason": one.reason, **message, **times}
        return {"terminated": ended}
    if one.started is not None:
        return {"running": {"startedAt": one.started}}
    return {"waiting": {"reason": "PodInitializing"}}
