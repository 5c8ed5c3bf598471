"""Settings, orders and pods for tests of the Kubernetes provider."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from autoscaler.config.settings.sku import Accelerator as WantedAccelerator
from autoscaler.config.settings.sku import AcceleratorVendor
from autoscaler.controller.ports.provider import LaunchOrder
from autoscaler.model.catalogue import Architecture, CapacityType
from autoscaler.model.identifiers import (
    InstallationId,
    Installations,
    LaunchRequestId,
    ProviderName,
    SkuName,
)
from autoscaler.providers.kubernetes.configuration import (
    ContainerMode,
    Dind,
    KubernetesMode,
    WorkVolume,
)
from autoscaler.providers.kubernetes.manifest.pod import named_pod, pod_template
from autoscaler.providers.kubernetes.settings import (
    Accelerator,
    KubernetesSettings,
    PodOption,
)

SKU = SkuName("linux.rocm.gpu.2")
CPU_SKU = SkuName("linux.cpu")

OPTION = PodOption(
    sku=SKU,
    shape="rocm-2",
    image="registry.example/runner-rocm:6.4",
    arch=Architecture.X64,
    resources={"cpu": "16", "memory": "64Gi"},
    accelerator=Accelerator("amd.com/gpu", 2),
    node_selector={"accelerator": "mi300x"},
    dollars_per_hour=3.5,
)
CPU_OPTION = PodOption(
    sku=CPU_SKU, shape="cpu", image="runner:1", resources={"cpu": "1", "memory": "1Gi"}
)


def with_changes(option: PodOption, **changes: Any) -> PodOption:
    return option.model_copy(update=changes)


def wanted(
    vendor: str = "nvidia",
    models: tuple[str, ...] = (),
    memory_gb: int | None = None,
    driver_version: str | None = None,
) -> WantedAccelerator:
    return WantedAccelerator(
        vendor=AcceleratorVendor(vendor),
        count=1,
        models=models or None,
        memory_gb=memory_gb,
        driver_version=driver_version,
    )


def dind(
    image: str = "docker:29.7.2-dind-rootless", resources: Mapping[str, str] | None = None
) -> ContainerMode:
    return ContainerMode(dind=Dind(image=image, resources=resources or {}))


def hooks(
    account: str = "container-hooks",
    storage: str | None = None,
    storage_class: str | None = None,
    resources: Mapping[str, str] | None = None,
) -> ContainerMode:
    volume = WorkVolume(size=storage, storage_class=storage_class) if storage else None
    mode = KubernetesMode(service_account=account, work_volume=volume, resources=resources or {})
    return ContainerMode(kubernetes=mode)


def make_settings(**changes: Any) -> KubernetesSettings:
    settings = KubernetesSettings(
        name=ProviderName("cluster"),
        fleet="ci",
        installations=Installations(InstallationId("f00dface")),
        namespace="runners",
        options={(SKU, 0): OPTION, (CPU_SKU, 0): CPU_OPTION},
        command=("agent",),
    )
    return replace(settings, **changes)


def make_order(
    count: int = 1, request: str = "0123456789abcdef", sku: SkuName = SKU
) -> LaunchOrder:
    return LaunchOrder(
        launch_request=LaunchRequestId(request),
        sku=sku,
        option=0,
        capacity_type=CapacityType.ON_DEMAND,
        offerings=("cluster/rocm-2/runners/on-demand",),
        count=count,
        token="token",
    )


def make_pod(status: Mapping[str, Any] | None = None, deleted: bool = False) -> dict[str, Any]:
    """A pod as the API server shows it."""
    settings = make_settings()
    pod = named_pod(pod_template(settings, OPTION, make_order()), "ci-0123456789abcdef-0", 0)
    pod["metadata"] |= {
        "uid": "4b3f0a1e-0000-4000-8000-000000000001",
        "creationTimestamp": "2026-11-22T13:00:00Z",
    }
    if deleted:
        pod["metadata"]["deletionTimestamp"] = "2026-11-22T14:00:00Z"
    return {**pod, "status": dict(status or {"phase": "Pending"})}


SAFE = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
"""The security context of a container of the autoscaler."""


def sidecar(**changes: Any) -> dict[str, Any]:
    """An overlay with a sidecar that passes, but for these changes."""
    own = {"name": "proxy", "image": "proxy:1", "restartPolicy": "Always", "securityContext": SAFE}
    return {"initContainers": [{**own, **changes}]}
