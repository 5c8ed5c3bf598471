"""The settings of the Kubernetes provider: cluster, namespace, and the pods of each launch option."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from autoscaler.model.catalogue import Architecture
from autoscaler.model.identifiers import (
    InstallationId,
    Installations,
    ProviderName,
    Seconds,
    SkuName,
)

RUNNER = "runner"
"""The name of the container of a pod that runs the agent and the jobs."""

RUNNER_USER = 1001
"""The user `runner` of GitHub's image ghcr.io/actions/actions-runner."""

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


@dataclass(frozen=True, slots=True)
class AcceleratorCheck:
    """What the check in a job's own pod compares the accelerators with, as the agent does elsewhere.

    `vendor` is `nvidia` or `amd`, `memory_gb` in GiB. Empty values and 0: any will do.
    """

    vendor: str
    models: tuple[str, ...] = ()
    memory_gb: int = 0
    driver_version: str = ""


@dataclass(frozen=True, slots=True)
class DockerInDocker:
    """A rootless Docker daemon beside the runner.

    `image` is a version of `docker:dind-rootless`. `resources` are quantities by resource: both requests and
    limits of the daemon, with all containers that jobs start.
    """

    image: str
    resources: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ContainerHooks:
    """GitHub's hooks, which run a job's container as a pod of its own.

    `service_account` has the rights of deploy/kubernetes/components/container-hooks. `storage` is the size of
    the volume that the runner shares with the job's pod (None: the hooks copy the work folder), and
    `storage_class` its class (None: the cluster's default). `resources` are quantities by resource: both
    requests and limits of the job's container.
    """

    service_account: str
    storage: str | None = None
    storage_class: str | None = None
    resources: Mapping[str, str] = field(default_factory=dict)


ContainerMode = DockerInDocker | ContainerHooks


@dataclass(frozen=True, slots=True)
class PodOption:
    """The pods of one launch option of a SKU.

    `shape` names them in offerings, like an instance type. `resources` are quantities by resource, such as
    `cpu: "14"`: both requests and limits. `overlay` is merged into the pod at last (see `manifest.overlay`).
    `shared_memory` is the size of /dev/shm, as a quantity (None: half of the memory limit).
    `topology_spread` are labels of nodes over whose values the fleet's pods are spread if possible.
    `do_not_disrupt` keeps Karpenter from disrupting the node of a pod that may run a job.
    `container_mode` is how its jobs run containers (None: not at all). `accelerator_check` is used where the
    job's own pod has the accelerators. `dollars_per_hour` counts against the fleet's limits.
    """

    sku: SkuName
    shape: str
    image: str
    arch: Architecture = Architecture.X64
    resources: Mapping[str, str] = field(default_factory=dict)
    accelerator: Accelerator | None = None
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, Any], ...] = ()
    runtime_class: str | None = None
    shared_memory: str | None = None
    topology_spread: tuple[str, ...] = ()
    do_not_disrupt: bool = True
    container_mode: ContainerMode | None = None
    accelerator_check: AcceleratorCheck | None = None
    dollars_per_hour: float = 0.0
    overlay: Mapping[str, Any] = field(default_factory=dict)

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
        return None if isinstance(self.container_mode, ContainerHooks) else self.accelerator


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
        hooked = (
            one.container_mode.service_account
            for one in self.options.values()
            if isinstance(one.container_mode, ContainerHooks)
        )
        return frozenset({self.service_account, *hooked})

    def after_adoption(self, installation: InstallationId) -> "KubernetesSettings":
        """Return the settings after the adoption of another installation."""
        return replace(self, installations=self.installations.after_adoption(installation))
