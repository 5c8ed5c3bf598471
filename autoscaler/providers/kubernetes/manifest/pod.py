"""Makes the Pod of a launch request. Pure.

The pod has one container, `runner`, with the pod's accelerators, the token that proves the pod's identity, and
a volume in memory for the agent's files. No init container has accelerators: kubelet, started again, would
allocate those of a container that has ended anew, and kill the pod (kubernetes/kubernetes#138446 and #124345).

Sources: Kubernetes documentation, "Schedule GPUs" (GPUs stand in `limits`), "Pod Security Standards"
(`restricted`), "Projected Volumes" (service account tokens with an audience).
"""

from collections.abc import Mapping
from typing import Any

from autoscaler.controller.ports.provider import LaunchOrder
from autoscaler.model.catalogue import Architecture
from autoscaler.providers.kubernetes.configuration import Toleration
from autoscaler.providers.kubernetes.identity import ownership
from autoscaler.providers.kubernetes.manifest.container_modes import (
    WORK_FOLDER,
    WORK_VOLUME,
    add_container_mode,
)
from autoscaler.providers.kubernetes.manifest.job_pods import (
    add_template,
    add_template_file,
    has_template,
)
from autoscaler.providers.kubernetes.manifest.overlay import merged
from autoscaler.providers.kubernetes.manifest.shared_memory import (
    add_shared_memory,
    bytes_of_docker,
)
from autoscaler.providers.kubernetes.manifest.visible_gpus import hide_other_gpus
from autoscaler.providers.kubernetes.settings import RUNNER, KubernetesSettings, PodOption

IDENTITY_VOLUME = "identity"
AGENT_VOLUME = "agent"

IDENTITY_FOLDER = "/run/runner-identity"
AGENT_FOLDER = "/run/runner-agent"

TOKEN_SECONDS = 3600
"""How long an identity token is valid. Kubelet replaces it before; 600 is the minimum."""

GRACE_SECONDS = 60
"""From SIGTERM to SIGKILL. A listener takes up to 30 seconds to report that its job was cancelled."""

ARCHITECTURES = {Architecture.X64: "amd64", Architecture.ARM64: "arm64"}
"""The values of the label `kubernetes.io/arch`."""


def pod_template(
    settings: KubernetesSettings, option: PodOption, order: LaunchOrder
) -> dict[str, Any]:
    """Return the pod of a launch request, without its name and slot.

    Raises OverlayError if the option's overlay breaks a rule.
    """
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": settings.namespace,
            "labels": {
                ownership.FLEET: settings.fleet,
                ownership.INSTALLATION: settings.installations.own,
                ownership.LAUNCH_REQUEST: order.launch_request,
            },
            "annotations": {
                ownership.SKU: option.sku,
                ownership.SHAPE: option.shape,
                ownership.QUOTA: option.quota,
                ownership.PRICE: f"{option.dollars_per_hour:g}",
            },
        },
        "spec": _spec(settings, option),
    }
    accelerator = option.runner_accelerator
    if has_template(option):
        add_template_file(pod["spec"], settings, option)
    pod = merged(pod, option.overlay, accelerator)
    if has_template(option):
        add_template(pod, option)
    add_shared_memory(pod["spec"], option.shared_memory)
    hide_other_gpus(pod["spec"], accelerator)
    return pod


def named_pod(template: Mapping[str, Any], name: str, slot: int) -> dict[str, Any]:
    """Return the pod of one slot of a launch request."""
    metadata = template["metadata"]
    labels = {**metadata["labels"], ownership.SLOT: str(slot)}
    return {**template, "metadata": {**metadata, "name": name, "labels": labels}}


def _spec(settings: KubernetesSettings, option: PodOption) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "serviceAccountName": settings.service_account,
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": settings.user,
            # Kubelet gives the group the volumes, so that the user can read the token.
            "fsGroup": settings.user,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "nodeSelector": node_selector(option),
        "tolerations": tolerations(option),
        "initContainers": [],
        "containers": [_runner(settings, option)],
        "volumes": [
            {"name": IDENTITY_VOLUME, "projected": {"sources": [_token(settings)]}},
            {"name": AGENT_VOLUME, "emptyDir": {"medium": "Memory", "sizeLimit": "8Mi"}},
            {"name": WORK_VOLUME, "emptyDir": {}},
        ],
    }
    if option.topology_spread:
        spec["topologySpreadConstraints"] = [
            {
                "maxSkew": 1,
                "topologyKey": key,
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {ownership.FLEET: settings.fleet}},
            }
            for key in option.topology_spread
        ]
    if option.runtime_class is not None:
        spec["runtimeClassName"] = option.runtime_class
    if option.container_mode is not None:
        # A resource of a device plugin has a domain.
        plain = {name: amount for name, amount in option.resources.items() if "/" not in name}
        resources = {"requests": plain, "limits": plain}
        shared = bytes_of_docker(option)
        add_container_mode(spec, option, resources, shared)
    return spec


def _token(settings: KubernetesSettings) -> dict[str, Any]:
    token = {
        "audience": settings.audience,
        "expirationSeconds": TOKEN_SECONDS,
        "path": "token",
    }
    return {"serviceAccountToken": token}


def _runner(settings: KubernetesSettings, option: PodOption) -> dict[str, Any]:
    """Return the container. The agent's last log line says in the pod's status why it ended early."""
    folders = {
        AGENT_VOLUME: AGENT_FOLDER,
        IDENTITY_VOLUME: IDENTITY_FOLDER,
        WORK_VOLUME: WORK_FOLDER,
    }
    return {
        "name": RUNNER,
        "image": option.image,
        "command": list(settings.command),
        "resources": _resources(option),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            {"name": volume, "mountPath": folder, "readOnly": volume == IDENTITY_VOLUME}
            for volume, folder in folders.items()
        ],
    }


def _resources(option: PodOption) -> dict[str, dict[str, str]]:
    limits = dict(option.resources)
    requests = dict(option.resources)
    if option.runner_accelerator is not None:
        limits[option.runner_accelerator.resource] = str(option.runner_accelerator.count)
    return {"requests": requests, "limits": limits}


def node_selector(option: PodOption) -> dict[str, str]:
    """Return the labels that the pod's node must have."""
    own = {"kubernetes.io/os": "linux", "kubernetes.io/arch": ARCHITECTURES[option.arch]}
    return {**own, **option.node_selector}


def tolerations(option: PodOption) -> list[dict[str, Any]]:
    """Return the option's tolerations, and one for the usual taint of nodes with accelerators.

    Kubernetes documentation, "Taints and Tolerations": nodes with special hardware.
    """
    found = [_toleration(one) for one in option.tolerations]
    if option.accelerator is not None:
        key = option.accelerator.resource
        found.append({"key": key, "operator": "Exists", "effect": "NoSchedule"})
    return found


def _toleration(found: Toleration) -> dict[str, str]:
    toleration = {"key": found.key, "operator": "Exists"}
    if found.value is not None:
        toleration |= {"operator": "Equal", "value": found.value}
    if found.effect is not None:
        toleration["effect"] = found.effect.value
    return toleration
