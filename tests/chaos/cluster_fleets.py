"""The fleets of the chaos runs with clusters: Kubernetes alone, and beside EC2.

The cluster `gpus` has three nodes and no provisioner. The cluster `elastic` has one that adds nodes.
"""

from collections.abc import Mapping
from dataclasses import replace

from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.provider import LaunchOrder, Provider
from autoscaler.model.catalogue import Architecture, CapacityType, LaunchOption, Sku
from autoscaler.model.identifiers import (
    InstallationId,
    Installations,
    LaunchRequestId,
    ProviderName,
    SkuName,
)
from autoscaler.providers.kubernetes.identity import ownership
from autoscaler.providers.kubernetes.listing.machines import identity, offering
from autoscaler.providers.kubernetes.manifest.pod import named_pod, pod_template
from autoscaler.providers.kubernetes.settings import (
    Accelerator,
    KubernetesSettings,
    PodOption,
)
from autoscaler.simulator.world.cluster.nodes import NodePool
from autoscaler.simulator.world.cluster.pods import ClusterPlan, PodMeaning, SimulatedCluster
from autoscaler.simulator.world.cluster.registry import Object
from autoscaler.simulator.world.controller.store import INSTALLATION
from autoscaler.simulator.world.instances import STRANGER
from autoscaler.simulator.world.schedule import Fleet
from autoscaler.simulator.world.setting import Setting
from tests.chaos.clusters import WorldProvider
from tests.chaos.fleet import SETTING

GPUS, ELASTIC = ProviderName("gpus"), ProviderName("elastic")
GPU = "nvidia.com/gpu"
NAMESPACE = "runners"

_TAINT = ({"key": GPU, "effect": "NoSchedule"},)
_FOUR = {GPU: 4, "pods": 10}
POOLS: Mapping[ProviderName, tuple[NodePool, ...]] = {
    GPUS: (NodePool("gpu", 3, _FOUR, taints=_TAINT),),
    ELASTIC: (
        NodePool("gpu", 0, _FOUR, {"pool": "gpu"}, _TAINT, most=3),
        NodePool("cpu", 1, {"pods": 4}, {"pool": "cpu"}, most=3),
        NodePool("arm", 1, {"pods": 4}, {"pool": "arm", "kubernetes.io/arch": "arm64"}, most=4),
    ),
}

QUOTA = {
    f"{GPUS}/{GPU}": 12,
    f"{ELASTIC}/{GPU}{{pool=gpu}}": 12,
    f"{ELASTIC}/pods{{pool=cpu}}": 12,
    f"{ELASTIC}/pods{{pool=arm}}": 16,
}
"""The free accelerators or pods of each cluster. For a cluster with a provisioner, the configured quota."""


def _pod(sku: str, pool: str = "", gpus: int = 0, dollars: float = 0.2) -> PodOption:
    return PodOption(
        sku=SkuName(sku),
        shape=f"{sku}-{gpus}" if gpus else sku,
        image="runner:1",
        arch=Architecture.ARM64 if pool == "arm" else Architecture.X64,
        accelerator=Accelerator(GPU, gpus) if gpus else None,
        node_selector={"pool": pool} if pool else {},
        dollars_per_hour=dollars,
    )


Pods = Mapping[tuple[ProviderName, str], PodOption]
PODS: Pods = {
    (GPUS, "gpu"): _pod("gpu", gpus=1, dollars=0.9),
    (GPUS, "big"): _pod("big", gpus=4, dollars=3.6),
    (ELASTIC, "gpu"): _pod("gpu", "gpu", 1, 1.1),
    (ELASTIC, "big"): _pod("big", "gpu", 4, 4.4),
    (ELASTIC, "cpu"): _pod("cpu", "cpu"),
    (ELASTIC, "arm"): _pod("arm", "arm"),
}

Placed = ProviderName | LaunchOption
"""A cluster, or a launch option on EC2."""


def _ec2(sku: str, index: int = 0) -> LaunchOption:
    return SETTING.catalogue.skus[SkuName(sku)].launch_options[index]


ALONE: Mapping[str, tuple[Placed, ...]] = {
    "gpu": (GPUS, ELASTIC),
    "big": (GPUS, ELASTIC),
    "cpu": (ELASTIC,),
    "arm": (ELASTIC,),
}
TOGETHER: Mapping[str, tuple[Placed, ...]] = {
    "gpu": (_ec2("gpu"), GPUS),
    "big": (GPUS, _ec2("big", 1)),
    "cpu": (_ec2("cpu"), ELASTIC),
    "arm": (ELASTIC, _ec2("arm")),
}


def _settings(name: ProviderName, placed: Mapping[str, tuple[Placed, ...]]) -> KubernetesSettings:
    return KubernetesSettings(
        name=name,
        fleet=SETTING.catalogue.fleet,
        installations=Installations(INSTALLATION),
        namespace=NAMESPACE,
        options={
            (SkuName(sku), index): PODS[name, sku]
            for sku, options in placed.items()
            for index, option in enumerate(options)
            if option == name
        },
        command=("agent",),
        provisioner=name == ELASTIC,
    )


def setting(placed: Mapping[str, tuple[Placed, ...]]) -> Setting:
    """Return a world with both clusters, whose SKUs have these launch options."""
    settings = {name: _settings(name, placed) for name in POOLS}
    skus = {name: _sku(sku, placed[name], settings) for name, sku in SETTING.catalogue.skus.items()}
    limits = SETTING.catalogue.limits
    quota = {**limits.quotas, **QUOTA}
    catalogue = replace(
        SETTING.catalogue, skus=skus, limits=replace(limits, quotas=quota), largest_requests={}
    )

    def connect(cluster: SimulatedCluster, clock: Clock) -> Provider:
        return WorldProvider(settings[cluster.name], clock, cluster)

    clusters = {name: _plan(name, one) for name, one in settings.items()}
    return replace(
        SETTING, catalogue=catalogue, quota=quota, clusters=clusters, connect_cluster=connect
    )


def _sku(
    sku: Sku, placed: tuple[Placed, ...], settings: Mapping[ProviderName, KubernetesSettings]
) -> Sku:
    options = tuple(
        option if isinstance(option, LaunchOption) else _option(settings[option], sku.name, index)
        for index, option in enumerate(placed)
    )
    return replace(sku, launch_options=options)


def _option(settings: KubernetesSettings, sku: SkuName, index: int) -> LaunchOption:
    sold = offering(settings, settings.options[sku, index])
    return LaunchOption(settings.name, (CapacityType.ON_DEMAND,), (sold,))


def _plan(name: ProviderName, settings: KubernetesSettings) -> ClusterPlan:
    options = {option.sku: (index, option) for (_, index), option in settings.options.items()}

    def meaning(pod: Object) -> PodMeaning | None:
        labels = pod["metadata"].get("labels") or {}
        if labels.get(ownership.FLEET) != settings.fleet:
            return None
        sku = SkuName(pod["metadata"]["annotations"][ownership.SKU])
        return PodMeaning(
            identity(pod).machine,
            LaunchRequestId(labels[ownership.LAUNCH_REQUEST]),
            sku,
            offering(settings, options[sku][1]),
            labels[ownership.INSTALLATION],
        )

    def stranger(number: int) -> Object:
        others = replace(settings, installations=Installations(InstallationId(STRANGER)))
        sku, (index, option) = next(iter(options.items()))
        order = LaunchOrder(
            LaunchRequestId("other"), sku, index, CapacityType.ON_DEMAND, (), 1, "other"
        )
        template = pod_template(others, option, order)
        return named_pod(template, f"{settings.fleet}-other-{number}", number)

    return ClusterPlan(POOLS[name], meaning, stranger)


SETTINGS: Mapping[Fleet, Setting] = {
    Fleet.EC2: SETTING,
    Fleet.KUBERNETES: setting(ALONE),
    Fleet.BOTH: setting(TOGETHER),
}
"""The settings of a world by the providers of its fleet."""
