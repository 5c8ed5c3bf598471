"""The labels and annotations of the provider's pods, and their names. Pure.

Labels can be selected, and annotations hold any text: a SKU's name may be too long for a label.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from autoscaler.model.identifiers import LaunchRequestId, ProviderMachineId

PREFIX = "gpu-runner-autoscaler/"
FLEET = f"{PREFIX}fleet"
INSTALLATION = f"{PREFIX}installation"
LAUNCH_REQUEST = f"{PREFIX}launch-request"
SLOT = f"{PREFIX}slot"
SKU = f"{PREFIX}sku"
SHAPE = f"{PREFIX}shape"
QUOTA = f"{PREFIX}quota"
PRICE = f"{PREFIX}dollars-per-hour"
QUOTA_UNITS = f"{PREFIX}quota-units"
"""The accelerators that count against the quota of a pod whose job has them in a pod of its own."""

RUNNER_POD = "runner-pod"
"""The label with which GitHub's hooks name the runner's pod (actions/runner-container-hooks,
`RunnerInstanceLabel`)."""

JOB_POD_END = "-workflow"
"""The end of the name of a job's pod (actions/runner-container-hooks, `getJobPodName`)."""

ASSIGNED = f"{PREFIX}assigned"
"""Set before the pod gets a JIT configuration, so that the cluster itself shows that it may run a job."""

DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"
"""Keeps Karpenter from disrupting and draining the pod's node, until the pod has ended.

Since Karpenter 1, also before a spot interruption: the pod is not evicted, and ends with its node
(aws/karpenter-provider-aws#8276). Karpenter, "Disruption": pod-level controls; `IsDisruptable`, `IsEvictable`
in `pkg/utils/pod/scheduling.go`."""

MAX_NAME = 63
"""A pod's name is also its host name (RFC 1123 label)."""

_ID = re.compile(r"([a-z0-9][a-z0-9-]{0,62})\.([0-9a-zA-Z-]{1,64})")


class PodIdentity(NamedTuple):
    """One pod: names can be used again, UIDs cannot."""

    name: str
    uid: str

    @property
    def machine(self) -> ProviderMachineId:
        """Return the identity as the provider's ID of the machine."""
        return ProviderMachineId(f"{self.name}.{self.uid}")


def identity_of(machine: ProviderMachineId) -> PodIdentity | None:
    """Return the pod of a provider's ID, or None if the ID is none of this provider."""
    found = _ID.fullmatch(machine)
    return PodIdentity(found[1], found[2]) if found else None


def pod_names(fleet: str, request: LaunchRequestId, count: int) -> tuple[str, ...]:
    """Return the names of a launch request's pods. The same request always has the same names.

    Raises ValueError if they would be no valid names.
    """
    names = tuple(f"{fleet}-{request}-{slot}" for slot in range(count))
    for name in names[-1:]:
        if len(name) > MAX_NAME or not re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", name):
            raise ValueError(f"{name} is no name for a pod")
    return names


def own_runner_pod(fleet: str, name: str) -> bool:
    """Return whether this is the name of a runner's pod of the fleet."""
    return re.fullmatch(rf"{re.escape(fleet)}-[0-9a-f]+-[0-9]+", name) is not None


def selector(fleet: str) -> str:
    """Return the label selector of a fleet's pods."""
    return f"{FLEET}={fleet}"


def metadata_of(pod: Mapping[str, Any], kind: str) -> Mapping[str, str]:
    """Return the `labels` or `annotations` of a pod."""
    found = pod.get("metadata", {}).get(kind)
    return found if isinstance(found, dict) else {}
