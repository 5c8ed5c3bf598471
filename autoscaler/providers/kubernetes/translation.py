"""Converts fleet.yaml into the settings of a Kubernetes provider. Pure, except that it reads the CA file."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from autoscaler.config.files.regular_files import read_regular
from autoscaler.config.settings.fleet import Settings
from autoscaler.config.settings.sku import Accelerator as WantedAccelerator
from autoscaler.config.settings.sku import AcceleratorVendor, SkuSettings
from autoscaler.model.identifiers import Installations, ProviderName, SkuName
from autoscaler.providers.kubernetes.configuration import (
    KubernetesOptionKeys,
    KubernetesSection,
    Pod,
)
from autoscaler.providers.kubernetes.manifest.command import pod_command
from autoscaler.providers.kubernetes.settings import Accelerator, KubernetesSettings, PodOption

VENDOR_RESOURCES: Mapping[AcceleratorVendor, str] = MappingProxyType(
    {AcceleratorVendor.NVIDIA: "nvidia.com/gpu", AcceleratorVendor.AMD: "amd.com/gpu"}
)
"""The resource of each vendor's device plugin (Kubernetes documentation, "Schedule GPUs")."""

EPHEMERAL_STORAGE = "ephemeral-storage"


def kubernetes_settings(
    name: ProviderName,
    settings: Settings,
    folder: Path,
    installations: Installations,
    agent_sha256: str,
) -> KubernetesSettings:
    """Return the settings of one provider, with its pods. File names are relative to `folder`."""
    section = settings.providers[name].section
    assert isinstance(section, KubernetesSection)
    server = settings.server
    ca_file = server.tls.ca_file if server.tls is not None else None
    ca_pem = read_regular(folder / ca_file).decode() if ca_file is not None else None
    return KubernetesSettings(
        name=name,
        fleet=settings.fleet,
        installations=installations,
        namespace=section.namespace,
        options=pod_options(settings, name),
        command=pod_command(server.public_url, name, agent_sha256, ca_pem),
        context=section.context,
        kubeconfig=folder / section.kubeconfig if section.kubeconfig is not None else None,
        service_account=section.service_account,
        provisioner=section.provisioner,
        pending_timeout=section.pending_timeout,
    )


def pod_options(settings: Settings, provider: ProviderName) -> dict[tuple[SkuName, int], PodOption]:
    """Return the launch options at a provider, by SKU and by position in the SKU's `on`."""
    found: dict[tuple[SkuName, int], PodOption] = {}
    for name, sku in settings.skus.items():
        number = 0
        for index, option in enumerate(sku.launch_options):
            if option.provider == provider and isinstance(option, KubernetesOptionKeys):
                number += 1
                # Offerings have this name, and a failure puts a hold on one of them.
                shape = name if number == 1 else f"{name}.{number}"
                found[SkuName(name), index] = _option(SkuName(name), sku, option, shape)
    return found


def _option(name: SkuName, sku: SkuSettings, option: KubernetesOptionKeys, shape: str) -> PodOption:
    pod = option.pod
    assert pod is not None
    keys = dict(pod)
    if sku.disk_gb is not None:
        keys["resources"] = {EPHEMERAL_STORAGE: f"{sku.disk_gb}Gi", **pod.resources}
    return PodOption(
        **keys,
        sku=name,
        shape=shape,
        arch=sku.arch,
        accelerator=accelerator_of(sku.accelerator, pod),
        accelerator_check=sku.accelerator,
        dollars_per_hour=option.price,
    )


def accelerator_of(wanted: WantedAccelerator | None, pod: Pod) -> Accelerator | None:
    """Return the accelerators of a SKU's pod: their resource, and how many."""
    if wanted is None:
        return None
    return Accelerator(pod.accelerator_resource or VENDOR_RESOURCES[wanted.vendor], wanted.count)
