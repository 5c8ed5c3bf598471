"""Says why a container waits, and whether kubelet can still start it. Pure.

Kubelet repeats each step that failed: it inspects or pulls the image, makes the container's configuration, and
creates and starts the container (`startContainer` in `pkg/kubelet/kuberuntime/kuberuntime_container.go`). On a
busy node each step can fail once, for example with "context deadline exceeded" or "failed to reserve container
name". So only texts that no repetition changes are hopeless.

Sources: kubelet's `pkg/kubelet/images/types.go`, `pkg/kubelet/images/image_manager.go` (a back-off's message
has the runtime's error), `pkg/kubelet/kuberuntime/security_context_others.go`; containerd's `client/pull.go`,
`core/remotes/docker/resolver.go` and `core/images/image.go`.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from autoscaler.providers.kubernetes.api.texts import one_line, without_middle

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


class ContainerWait(NamedTuple):
    """Why a container does not start. `hopeless`: no repetition of kubelet's can start it.

    `of_node`: its node may be the cause, so that another node could start it. `creating`: the image is there.
    """

    code: str
    message: str
    retrying: bool = False
    hopeless: bool = False
    of_node: bool = False
    creating: bool = False


def container_wait(container: Mapping[str, Any]) -> ContainerWait | None:
    """Return why a container of a pod's status does not start, or None if nothing keeps it from starting."""
    waiting = (container.get("state") or {}).get("waiting") or {}
    code = one_line(waiting.get("reason"))
    said = " ".join(str(waiting.get("message") or "")[:_MOST_READ].split())
    message = without_middle(said, _MOST_SHOWN)
    of_node = code not in _OF_ALL_NODES or _NODE_FAILS.search(said) is not None
    if code in _HOPELESS and _HOPELESS[code].search(said):
        return ContainerWait(code, message, hopeless=True, of_node=of_node)
    if code in _RETRIED:
        creating = not code.startswith(_PULLS)
        return ContainerWait(code, message, retrying=True, of_node=of_node, creating=creating)
    if code == _CRASH_LOOP:
        last = (container.get("lastState") or {}).get("terminated") or {}
        message += f"; it ended with status {last.get('exitCode')}"
        hopeless = int(container.get("restartCount") or 0) >= _RESTARTS
        return ContainerWait(code, message, hopeless=hopeless, of_node=True)
    return None
