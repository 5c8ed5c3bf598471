"""Keeps GPUs from containers that request none. Pure.

NVIDIA's container runtime gives a container the GPUs of NVIDIA_VISIBLE_DEVICES. Images for CUDA set it to
`all`, and a container without a request would see every GPU of its node (NVIDIA/k8s-device-plugin#61). With
`void`, the runtime does nothing (NVIDIA Container Toolkit, "Specialized Configurations with Docker").

For a container with a request, the device plugin sets the variable. Kubelet adds the pod's own variables after
those of device plugins (`GenerateRunContainerOptions` in pkg/kubelet/kubelet_pods.go), so the pod sets none.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from autoscaler.providers.kubernetes.manifest.fields import CONTAINER_LISTS, elements, mapping
from autoscaler.providers.kubernetes.settings import Accelerator

VARIABLE = "NVIDIA_VISIBLE_DEVICES"

_VOID = "void"
_NO_GPU = frozenset({_VOID, "none", "", None})
"""The values with which the runtime gives a container no GPU. With `none`, it adds the driver's files."""

_NVIDIA = re.compile(r"nvidia\.com/(gpu|mig-).*")
"""The resources of NVIDIA's device plugin. Others of this domain are network interfaces."""
_AMD = "amd.com/"


def hide_other_gpus(spec: Mapping[str, Any], accelerator: Accelerator | None) -> None:
    """Let the containers of a pod see only the NVIDIA GPUs that they request."""
    for kind in CONTAINER_LISTS:
        for container in spec.get(kind, ()):
            env = elements(container, "env")
            is_set = any(one.get("name") == VARIABLE for one in env)
            if not is_set and not _requests_gpus(container, accelerator):
                # A variable of `env` has precedence over those of `envFrom`, and over those of the image.
                container["env"] = [*env, {"name": VARIABLE, "value": _VOID}]


def visible_gpu_problems(pod: Mapping[str, Any], accelerator: Accelerator | None) -> Iterator[str]:
    """Yield what would show a container of a pod with its overlay other GPUs than it requests."""
    for kind in CONTAINER_LISTS:
        for container in elements(pod["spec"], kind):
            key = f"spec.{kind}[{container.get('name')}].env[{VARIABLE}]"
            found = [one for one in elements(container, "env") if one.get("name") == VARIABLE]
            if found and _requests_gpus(container, accelerator):
                yield f"{key}: the device plugin sets it; remove it"
            elif any(one.get("valueFrom") or one.get("value") not in _NO_GPU for one in found):
                yield f"{key}: the container requests no GPU; write {_VOID}, or remove it"


def _requests_gpus(container: Mapping[str, Any], accelerator: Accelerator | None) -> bool:
    own = accelerator.resource if accelerator is not None else _AMD
    return any(
        _NVIDIA.fullmatch(str(resource)) or (resource == own and not own.startswith(_AMD))
        for resource in mapping(mapping(container, "resources"), "limits")
    )
