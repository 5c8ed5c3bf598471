"""The settings of the Kubernetes provider: cluster, namespace, and the pods of each launch option."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from autoscaler.config.settings.sku import Accelerator as WantedAccelerator
from autoscaler.model.catalogue import Architecture
from autoscaler.model.identifiers import (
    InstallationId,
    Installations,
    ProviderName,
    Seconds,
    SkuName,
)
from autoscaler.providers.kubernetes.configuration import RUNNER as RUNNER
from autoscaler.providers.kubernetes.configuration import RUNNER_USER as RUNNER_USER
from autoscaler.providers.kubernetes.configuration import Pod

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
