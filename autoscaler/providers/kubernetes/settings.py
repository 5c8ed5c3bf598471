"""The settings of the Kubernetes provider, from fleet.yaml: a cluster, a namespace, and pods of launch options.

Pure, except that it reads the CA file.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from autoscaler.config.files.regular_files import read_regular
from autoscaler.config.settings.fleet import Settings
from autoscaler.config.settings.sku import Accelerator as WantedAccelerator
from autoscaler.config.settings.sku import AcceleratorVendor, SkuSettings
from autoscaler.model.catalogue import Architecture
from autoscaler.model.identifiers import (
    InstallationId,
    Installations,
    ProviderName,
    Seconds,
    SkuName,
)
from autoscaler.providers.kubernetes.command import pod_command
from autoscaler.providers.kubernetes.configuration import RUNNER as RUNNER
from autoscaler.providers.kubernetes.configuration import RUNNER_USER as RUNNER_USER
from autoscaler.providers.kubernetes.configuration import (
    KubernetesOptionKeys,
    KubernetesSection,
    Pod,
)

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where kubelet writes a pod's token and the cluster's certificate authority."""

PODS = "pods"
"""The resource that pods without an accelerator count against."""


@dataclass(frozen=True, slots=True)
class Accelerator:
    """The accelerators of a pod: the resource of their device plugin, and how many.

    NVIDIA's plugin calls it `nvidia.com/gpu`, AMD's `amd.com/gpu`.
    """

    resource: str
    count: int


class PodOption(Pod):
    """The pods of one launch option of a SKU: its keys below `pod`, and what the SKU says about them."""

    sku: SkuName
    shape: str
    """The name of the pods in offerings, like an instance type."""
    arch: Architecture = Architecture.X64
    accelerator: Accelerator | None = None
    accelerator_check: WantedAccelerator | None = None
    """What the check in a job's own pod compares the accelerators with."""
    dollars_per_hour: float = 0.0
    """The price of a pod, which counts against the fleet's limits."""

    @property
    def quota(self) -> str:
        """Return the name of what limits these pods: a resource on the nodes that the selector matches.

        Such as `amd.com/gpu{accelerator=mi300x}`.
        """
        resource = self.accelerator.resource if self.accelerator is not None else PODS
        labels = ",".join(f"{key}={value}" for key, value in sorted(self.node_selector.items()))
        return f"{resource}{{{labels}}}" if labels else resource

    @property
    def runner_accelerator(self) -> Accelerator | None:
        """Return the accelerators of the runner's pod: none if the job's own pod has them."""
        return None if self.hooks is not None else self.accelerator


@dataclass(frozen=True, slots=True)
class KubernetesSettings:
    """The settings of one provider: one namespace of one cluster.

    `context` is a context of `kubeconfig` (None: the usual places of kubectl). Without a context, the
    provider uses the service account of the pod that the controller runs in: the token and the certificate
    authority in `service_account_folder`. `options` are by SKU and by position in the SKU's `on`.
    `provisioner` says that nodes can be added, as by Karpenter: a pod that fits on no node then waits for one,
    for `pending_timeout` seconds. `command` runs the agent in a pod. `timeout` is in seconds, for each request.
    """

    name: ProviderName
    fleet: str
    installations: Installations
    namespace: str
    options: Mapping[tuple[SkuName, int], PodOption]
    command: tuple[str, ...]
    context: str | None = None
    kubeconfig: Path | None = None
    service_account: str = "default"
    provisioner: bool = True
    pending_timeout: Seconds = 900.0
    service_account_folder: Path = SERVICE_ACCOUNT
    user: int = RUNNER_USER
    timeout: float = 30.0

    @property
    def audience(self) -> str:
        """Return the audience of the tokens with which this fleet's pods prove their identity."""
        return f"{self.fleet}.gpu-runner-autoscaler"

    @property
    def service_accounts(self) -> frozenset[str]:
        """Return the service accounts of all pods."""
        hooked = (one.hooks.service_account for one in self.options.values() if one.hooks)
        return frozenset({self.service_account, *hooked})

    def after_adoption(self, installation: InstallationId) -> "KubernetesSettings":
        """Return the settings after the adoption of another installation."""
        return replace(self, installations=self.installations.after_adoption(installation))


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
