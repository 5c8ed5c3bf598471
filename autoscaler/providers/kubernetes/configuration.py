"""The keys of a Kubernetes provider and its launch options in fleet.yaml, with their defaults."""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from autoscaler.config.problems import show
from autoscaler.config.settings.fleet import JobContainer, ProviderSection
from autoscaler.config.settings.near_misses import check_resources
from autoscaler.config.settings.scalars import Matching, wrong
from autoscaler.config.settings.shapes import Dollars, Duration, FilePath, Section, Text
from autoscaler.config.settings.sku import LaunchOptionSettings
from autoscaler.model.identifiers import Seconds
from autoscaler.providers.kubernetes.values import other_names
from autoscaler.providers.kubernetes.values.image_references import FIX, is_image_reference
from autoscaler.providers.kubernetes.values.quantities import bytes_of, quantity

MAX_DNS_LABEL = 63

_SUBDOMAIN = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*"
_QUALIFIED = rf"(?=[^/]{{1,253}}/){_SUBDOMAIN}/"
_NAME = "[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
"""The parts of names: IsDNS1123Subdomain and IsQualifiedName of apimachinery/pkg/util/validation."""

Namespace = Annotated[
    str,
    Matching(
        "[a-z0-9]([a-z0-9-]*[a-z0-9])?",
        "a name of Kubernetes",
        "use a to z, 0 to 9 and - only",
        maximum=MAX_DNS_LABEL,
    ),
]
ObjectName = Annotated[
    str,
    Matching(
        _SUBDOMAIN,
        "a name of Kubernetes",
        "use a to z, 0 to 9, - and single dots only",
        maximum=253,
    ),
]
QualifiedName = Annotated[
    str,
    Matching(
        rf"({_QUALIFIED})?{_NAME}",
        "a name of Kubernetes",
        "write NAME or DOMAIN/NAME, such as nvidia.com/gpu",
        maximum=317,
    ),
]
ExtendedResource = Annotated[
    str,
    Matching(
        rf"{_QUALIFIED}{_NAME}",
        "a resource of a device plugin",
        "write DOMAIN/NAME, such as amd.com/gpu",
        maximum=317,
    ),
]
LabelValue = Annotated[
    str,
    Matching(
        f"({_NAME})?",
        "the value of a label",
        "use at most 63 letters, digits, dots, - and _",
    ),
]


def _check_quantity(text: str) -> str:
    try:
        quantity(text)
    except ValueError:
        found = re.fullmatch("([0-9.]+) ?([KMGT])i?[Bb]", text)
        fix = f"write {found[1]}{found[2]}i" if found else 'write one such as "4", 500m or 56Gi'
        raise wrong(f"{show(text)} is not a quantity", fix) from None
    return text


Quantity = Annotated[str, AfterValidator(_check_quantity)]
Resources = Annotated[Mapping[QualifiedName, Quantity], BeforeValidator(check_resources)]


def _check_image_reference(text: str) -> str:
    if not is_image_reference(text):
        raise wrong(f"{show(text)} is not an image reference", FIX)
    return text


ImageReference = Annotated[str, AfterValidator(_check_image_reference)]


KEY = "kubernetes"
"""The key of a Kubernetes provider's section."""

RUNNER = "runner"
"""The name of the container of a pod that runs the agent and the jobs."""

RUNNER_USER = 1001
"""The user `runner` of GitHub's image ghcr.io/actions/actions-runner."""


class TaintEffect(StrEnum):
    """What a taint does to pods that do not tolerate it, spelled as Kubernetes does."""

    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


class Toleration(Section):
    """A taint of nodes that the pod tolerates."""

    others = other_names.TOLERATION

    key: QualifiedName
    """The taint's key."""
    value: LabelValue | None = None
    """The taint's value; default: any value."""
    effect: TaintEffect | None = None
    """`NoSchedule`, `PreferNoSchedule` or `NoExecute`; default: every effect."""


class Dind(Section):
    """A rootless Docker daemon beside the runner."""

    image: ImageReference
    """A version of `docker:dind-rootless`. The container is privileged: its namespace must allow this."""
    resources: Resources = Field(default_factory=dict)
    """Requests and limits of the daemon with all containers of jobs; default: none."""


class WorkVolume(Section):
    """A volume that the runner's pod shares with the pods of its job."""

    size: Quantity
    """The size of the volume, such as `20Gi`."""
    storage_class: ObjectName | None = None
    """The storage class of the volume; default: the cluster's."""


class KubernetesMode(Section):
    """GitHub's container hooks, which run a job's container as a pod of its own."""

    service_account: ObjectName
    """The service account with the rights of the hooks. Only the runner's container gets its token."""
    work_volume: WorkVolume | None = None
    """A volume for the work folder; default: the hooks copy the folder to the job's pod."""
    resources: Resources = Field(default_factory=dict)
    """Requests and limits of the job's container, besides the SKU's accelerators; default: none."""


class ContainerMode(Section):
    """How jobs run containers: as in GitHub's ARC, `dind` or `kubernetes`."""

    dind: Dind | None = None
    """A rootless Docker daemon beside the runner."""
    kubernetes: KubernetesMode | None = None
    """GitHub's container hooks: each job must have a container, which runs as a pod of its own."""


class Pod(Section):
    """A runner's pod."""

    others = other_names.POD

    image: ImageReference
    """The container image: `[REGISTRY/]NAME[:TAG][@DIGEST]`."""
    resources: Resources = Field(default_factory=dict)
    """Requests and limits by resource, as text: `cpu: "14"`. `ephemeral-storage` defaults to `disk_gb`."""
    accelerator_resource: ExtendedResource | None = None
    """The resource of the accelerators; default: `nvidia.com/gpu` or `amd.com/gpu`, by vendor."""
    node_selector: Mapping[QualifiedName, LabelValue] = Field(default_factory=dict)
    """Labels that the node must have."""
    tolerations: tuple[Toleration, ...] = ()
    """Taints of nodes that the pod tolerates, besides the usual one of its accelerators."""
    runtime_class: ObjectName | None = None
    """The runtime class, where accelerators need one; default: the node's default runtime."""
    shared_memory: Quantity | None = None
    """The size of `/dev/shm`, which is part of the pod's memory; default: half of it."""
    topology_spread: tuple[QualifiedName, ...] = ()
    """Node labels over whose values to spread the fleet's pods if possible: `topology.kubernetes.io/zone`."""
    do_not_disrupt: bool = True
    """Whether Karpenter leaves the node of a job alone. It then does not drain an interrupted spot node."""
    container_mode: ContainerMode | None = None
    """How jobs run containers; default: they cannot."""
    overlay: Mapping[str, Any] = Field(default_factory=dict)
    """`metadata` and `spec` to merge into the pod, in the form of a Pod."""

    @property
    def dind(self) -> Dind | None:
        """The Docker daemon beside the runner."""
        return self.container_mode.dind if self.container_mode is not None else None

    @property
    def hooks(self) -> KubernetesMode | None:
        """GitHub's container hooks."""
        return self.container_mode.kubernetes if self.container_mode is not None else None


class KubernetesOptionKeys(LaunchOptionSettings):
    """The keys of a launch option on Kubernetes."""

    price: Dollars = 0.0
    """The price of a pod in dollars an hour (Kubernetes)."""
    pod: Pod | None = None
    """The runner's pod (Kubernetes)."""


class KubernetesSection(ProviderSection):
    """Pods in one namespace of one cluster."""

    title = "Kubernetes"
    place = frozenset({"context", "kubeconfig", "namespace"})
    others = other_names.CLUSTER

    context: Text | None = None
    """The kubeconfig context; default: the current one. Without both keys: the controller's own cluster."""
    kubeconfig: FilePath | None = None
    """The kubeconfig; default: that of `KUBECONFIG`, or `~/.kube/config`."""
    namespace: Namespace
    """The namespace of the runner pods."""
    service_account: ObjectName = "default"
    """The service account of the runner pods. They get no token for the API server."""
    provisioner: bool = True
    """Whether nodes are added for waiting pods, as by Karpenter. If not, free capacity is the quota."""
    pending_timeout: Duration = 900.0
    """With a provisioner: how long a pod may wait for a node before the next launch option is tried."""

    def longest_wait(self) -> Seconds:
        """Return how long a pod may wait for a node."""
        return self.pending_timeout if self.provisioner else 0.0

    def describe(self, option: LaunchOptionSettings) -> str:
        """Return the image."""
        assert isinstance(option, KubernetesOptionKeys)
        return f"pod {option.pod.image}" if option.pod is not None else "pod"

    def container(self, option: LaunchOptionSettings) -> JobContainer | None:
        """Return the runner's container of the pod."""
        assert isinstance(option, KubernetesOptionKeys)
        pod = option.pod
        if pod is None:
            return None
        return job_container(pod)


def job_container(pod: Pod) -> JobContainer:
    """Return what a job finds in its pod: the runner's container, with its overlay."""
    found = pod.overlay.get("spec", {}).get("containers", ())
    runner: Mapping[str, Any] = next((one for one in found if one.get("name") == RUNNER), {})
    entries = [one for one in runner.get("env", ()) if one.get("name")]
    cpu, memory = pod.resources.get("cpu"), pod.resources.get("memory")
    return JobContainer(
        image=runner.get("image", pod.image),
        user=RUNNER_USER,
        cpus=None if cpu is None else float(quantity(cpu)),
        memory=None if memory is None else int(quantity(memory)),
        shared_memory=bytes_of(pod.shared_memory, memory),
        environment={
            one["name"]: str(one.get("value", "")) for one in entries if "valueFrom" not in one
        },
        unknown=tuple(one["name"] for one in entries if "valueFrom" in one),
    )
