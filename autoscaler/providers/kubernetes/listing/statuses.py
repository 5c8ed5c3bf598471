"""Says what a pod's status means: whether the pod runs, ends, leaves or cannot start, and why. Pure.

A container that waits: kubelet repeats each step that failed. It inspects or pulls the image, makes the
container's configuration, and creates and starts the container (`startContainer` in
`pkg/kubelet/kuberuntime/kuberuntime_container.go`). On a busy node each step can fail once, for example with
"context deadline exceeded" or "failed to reserve container name". So only texts that no repetition changes are
hopeless.

Sources: Kubernetes documentation, "Pod Lifecycle"; kubelet's `pkg/kubelet/images/types.go`,
`pkg/kubelet/images/image_manager.go` (a back-off's message has the runtime's error),
`pkg/kubelet/kuberuntime/security_context_others.go`; containerd's `client/pull.go`,
`core/remotes/docker/resolver.go` and `core/images/image.go`. `ends` says why a pod ended.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from autoscaler.model.machines.failures import FailureClass, FailureScope
from autoscaler.providers.kubernetes.api.texts import one_line, without_middle
from autoscaler.providers.kubernetes.listing.ends import (
    Finding,
    condition,
    containers,
    disruption,
    is_not_admitted,
    pod_end,
)

UNSCHEDULABLE = "Unschedulable"

_SANDBOX = "PodReadyToStartContainers"
"""The condition is False until the node has mounted the pod's volumes and set up its network. Only events say
why that fails, and the status shows no container (Kubernetes documentation, "Pod network readiness", 1.29)."""

_CLAIM_COMES = re.compile(
    "waiting for ephemeral volume controller|unbound immediate PersistentVolumeClaims"
)
"""What the scheduler says of a pod whose claim is being created or bound (kubernetes/kubernetes#104525)."""

_WAS_DELETED = "the pod was deleted"

_MOST_READ = 10_000
"""Characters of a message that are searched: an error repeats long image names."""

_MOST_SHOWN = 420
"""Characters of a message that are shown. The reason of a machine also names the code and the container."""

_ALWAYS = re.compile("")

_PULL_REFUSED = re.compile(
    # containerd: all hosts answered, and none has the image. "no resolve hosts: not found" is another error.
    r'failed to resolve (?:reference "[^"]*"|image): \S+: not found\b|'
    r"no match for platform in manifest|"
    r"pull access denied, repository does not exist or may require authorization: "
    r"server message: insufficient_scope|"
    # CRI-O shows the registry's error codes (OCI distribution specification, "Error Codes").
    r"manifest unknown|name unknown|denied: requested access to the resource is denied|"
    r"no image found in (?:manifest list|image index) for architecture"
)
"""Answers of registries that another pull does not change: there is no such image, or no right to read it.

A 401 or 403 alone may come from a failing token service, or from a node that could not get credentials.
"""

_HOPELESS: Mapping[str, re.Pattern[str]] = MappingProxyType(
    {
        "InvalidImageName": _ALWAYS,
        "ImagePullBackOff": _PULL_REFUSED,
        "CreateContainerConfigError": re.compile(
            "container has runAsNonRoot and image |container's runAsUser breaks non-root policy"
        ),
        # The image has no such user or group, or neither it nor the pod has a command.
        "CreateContainerError": re.compile(
            "no matching entries in (?:passwd|group) file|no command specified"
        ),
        "RunContainerError": re.compile(r"executable file not found in \$PATH"),
    }
)
"""The texts, by the reason of the wait, after which a container cannot start."""

_RETRIED = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "ErrImageNeverPull",
        "ImageInspectError",
        "RegistryUnavailable",
        "SignatureValidationFailed",
        "CreateContainerConfigError",
        "PreCreateHookError",
        "CreateContainerError",
        "PreStartHookError",
        "RunContainerError",
        "PostStartHookError",
    }
)
"""Failed steps that kubelet repeats. Another pod, or a person, may bring an image that is never pulled."""

_PULLS = ("ErrImage", "Image", "Registry", "Signature")
"""How the codes of steps before the image is there begin."""

_OF_ALL_NODES = frozenset(
    {"InvalidImageName", "CreateContainerConfigError", "SignatureValidationFailed"}
)
"""Reasons whose cause is usually the same on each node: a missing Secret, an image without a signature.

Other nodes may have another way to the registry, credentials of their own, an undamaged image, or another
architecture.
"""

_NODE_FAILS = re.compile(
    "no space left on device|read-only file system|input/output error|stale (?:NFS )?file handle|"
    "failed to (?:prepare|create) subPath|failed to sync (?:configmap|secret) cache"
)
"""Texts with these reasons whose cause is on the node: its disk, its mounts, its kubelet."""

_CRASH_LOOP = "CrashLoopBackOff"

_RESTARTS = 3
"""Number of restarts after which a sidecar counts as failed. Kubelet waits 10, 20, 40 s and so on between them
(Kubernetes documentation, "Pod Lifecycle": container restarts)."""


class PodState(NamedTuple):
    """What a pod's status says: `state` for operators, and why it ended, leaves or does not start.

    `terminated`: no container of it runs any more. `leaving`: it was deleted, and its containers stop.
    `deleted`: it was deleted before it ended.
    `disrupted`: it runs or starts, and the cluster has announced its deletion.
    `unschedulable`: no node has room for it now. `retrying`: kubelet has not set up the pod yet, or could not
    pull an image or create a container, and tries again. `creating`: it tries to create or start a container
    whose image it has. `refused`: it cannot start until an operator changes something. `not_admitted`: it ended
    because kubelet refused it, perhaps after it had run.
    """

    state: str
    finding: Finding | None = None
    terminated: bool = False
    leaving: bool = False
    deleted: bool = False
    disrupted: bool = False
    unschedulable: bool = False
    retrying: bool = False
    creating: bool = False
    refused: bool = False
    not_admitted: bool = False


def pod_state(pod: Mapping[str, Any]) -> PodState:
    """Return the state of a pod, as the API server shows it."""
    status = pod.get("status") or {}
    phase = status.get("phase") or "Pending"
    disrupted = disruption(status)
    deleted = bool(pod.get("metadata", {}).get("deletionTimestamp"))
    if phase in ("Failed", "Succeeded"):
        killed = deleted and phase == "Failed"
        found = disrupted or pod_end(pod, status, phase)
        if killed and disrupted is None:
            found = found._replace(message=_joined(found.message, _WAS_DELETED))
        refused = phase == "Failed" and is_not_admitted(found)
        return PodState(phase, found, terminated=True, deleted=killed, not_admitted=refused)
    if deleted:
        waits = _pending(status).finding if phase == "Pending" else None
        return PodState("Terminating", _deleted(disrupted, waits), leaving=True, deleted=True)
    if phase == "Pending" and disrupted is None:
        return _pending(status)
    return PodState(phase, disrupted, disrupted=disrupted is not None)


def _pending(status: Mapping[str, Any]) -> PodState:
    scheduled = condition(status, "PodScheduled")
    if scheduled.get("status") == "False":
        code = one_line(scheduled.get("reason")) or UNSCHEDULABLE
        message = one_line(scheduled.get("message"))
        finding = Finding(code, message, FailureClass.CAPACITY)
        # A nominated node has room once the pods that this one preempts have ended.
        soon = status.get("nominatedNodeName") or _CLAIM_COMES.search(message)
        return PodState(code, finding, unschedulable=code == UNSCHEDULABLE and not soon)
    for one in containers(status):
        found = _waiting(one)
        if found is not None:
            return found
    if condition(status, _SANDBOX).get("status") == "False":
        message = "its node has not mounted its volumes or set up its network yet"
        finding = Finding(_SANDBOX, message, FailureClass.UNKNOWN, FailureScope.HOST)
        return PodState("Pending", finding, retrying=True)
    if scheduled.get("status") == "True" and not any(containers(status)):
        message = "the kubelet of its node has not reported its containers yet"
        finding = Finding("NotStarted", message, FailureClass.UNKNOWN, FailureScope.HOST)
        return PodState("Pending", finding, retrying=True)
    return PodState("Pending")


def _waiting(container: Mapping[str, Any]) -> PodState | None:
    """Return the state of a pod whose container does not start, or None if nothing keeps it from starting."""
    waiting = (container.get("state") or {}).get("waiting") or {}
    code = one_line(waiting.get("reason"))
    said = " ".join(str(waiting.get("message") or "")[:_MOST_READ].split())
    message = without_middle(said, _MOST_SHOWN)
    of_node = code not in _OF_ALL_NODES or _NODE_FAILS.search(said) is not None
    refused = code in _HOPELESS and _HOPELESS[code].search(said) is not None
    retrying = code in _RETRIED and not refused
    if code == _CRASH_LOOP:
        last = (container.get("lastState") or {}).get("terminated") or {}
        message += f"; it ended with status {last.get('exitCode')}"
        refused = int(container.get("restartCount") or 0) >= _RESTARTS
    elif not refused and not retrying:
        return None
    message = f"container {one_line(container.get('name'))}: {message}"
    scope = FailureScope.HOST if of_node else None
    return PodState(
        code,
        Finding(code, message, FailureClass.CONFIGURATION, scope),
        retrying=retrying,
        creating=retrying and not code.startswith(_PULLS),
        refused=refused,
    )


def _deleted(disrupted: Finding | None, waits: Finding | None) -> Finding:
    """Return why a pod is deleted, and what it waited for."""
    found = disrupted or Finding("Deleted", _WAS_DELETED)
    waited = f"it waited: {waits.text}" if waits is not None else ""
    return found._replace(message=_joined(found.message, waited))


def _joined(*parts: str) -> str:
    return "; ".join(part for part in parts if part)
