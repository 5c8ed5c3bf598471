"""What fleet.yaml says about pods reaches the provider: cluster, namespace, pods, prices."""

import json
from pathlib import Path
from typing import Any

import pytest

from autoscaler.app.preflight import load_for_service
from autoscaler.app.translation import catalogue, provider_factories
from autoscaler.config import Configuration
from autoscaler.config.settings.sku import AcceleratorVendor
from autoscaler.controller.ports.provider import ProviderContext
from autoscaler.model.catalogue import Architecture
from autoscaler.model.identifiers import InstallationId, Installations, ProviderName, SkuName
from autoscaler.providers.kubernetes.configuration import ContainerMode
from autoscaler.providers.kubernetes.manifest.pod import pod_template
from autoscaler.providers.kubernetes.provider import KubernetesProvider
from autoscaler.providers.kubernetes.settings import (
    VENDOR_RESOURCES,
    Accelerator,
    KubernetesSettings,
    PodOption,
    kubernetes_settings,
)
from autoscaler.providers.registry import provider_kinds
from tests.config.fleet_file import EXAMPLE, MINIMAL, Folder
from tests.providers.doubles import ManualClock, RememberingTelemetry
from tests.providers.kubernetes_pods import dind, hooks, make_order

INSTALLATIONS = Installations(InstallationId("f00dface"))
CLUSTER = ProviderName("cluster")

PODS = (
    MINIMAL[: MINIMAL.index("providers:")]
    + """\
providers:
  cluster:
    kubernetes: {SECTION}
skus:
  gpu:
    on:
      - {provider: cluster, POD}
    SKU
"""
)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def configured(
    folder: Folder, pod: str = "image: i", sku: str = "arch: x64", section: str = "namespace: n"
) -> Configuration:
    text = PODS.replace("SECTION", section).replace("SKU", sku)
    text = text.replace("POD", f"pod: {{{pod}}}")
    (folder.path / "fleet.yaml").write_text(text)
    return load_for_service(folder.path / "fleet.yaml")


def translated(configuration: Configuration, name: ProviderName = CLUSTER) -> KubernetesSettings:
    folder = configuration.path.parent
    return kubernetes_settings(name, configuration.settings, folder, INSTALLATIONS, "0" * 64)


def option(folder: Folder, pod: str = "image: i", sku: str = "arch: x64") -> PodOption:
    return translated(configured(folder, pod, sku)).options[(SkuName("gpu"), 0)]


def spec_of(settings: KubernetesSettings, option: PodOption) -> dict[str, Any]:
    spec: dict[str, Any] = pod_template(settings, option, make_order(sku=option.sku))["spec"]
    return spec


async def test_the_factory_makes_the_provider_of_the_example(folder: Folder) -> None:
    (folder.path / "fleet.yaml").write_text(EXAMPLE.read_text())
    configuration = load_for_service(folder.path / "fleet.yaml")
    factories = provider_factories(configuration, provider_kinds())
    factory = factories[ProviderName("gpu-cluster")]
    await factory.start()
    context = ProviderContext(INSTALLATIONS, "0" * 64, RememberingTelemetry(), ManualClock())
    provider = factory.make(context)
    assert isinstance(provider, KubernetesProvider)
    assert provider.name == "gpu-cluster"
    order = make_order(sku=SkuName("linux.rocm.gpu.2"))
    pod = json.loads(await provider.prepare(order))["pod"]
    assert pod["metadata"]["namespace"] == "runners"
    assert pod["spec"]["containers"][0]["image"] == "runner-rocm:7.2"
    controller = json.loads(pod["spec"]["containers"][0]["command"][-1])
    assert controller["controller"] == "https://fleet.internal.example:8443"
    assert controller["provider"] == "gpu-cluster"
    assert controller["ca"] == (folder.path / "ca.pem").read_text()
    await provider.close()
    await factory.close()
    await factory.close()


def test_the_example_s_pods_become_launch_options(folder: Folder) -> None:
    (folder.path / "fleet.yaml").write_text(EXAMPLE.read_text())
    configuration = load_for_service(folder.path / "fleet.yaml")
    settings = translated(configuration, ProviderName("gpu-cluster"))
    assert (settings.context, settings.kubeconfig, settings.namespace) == ("gpu", None, "runners")
    assert (settings.fleet, settings.provisioner) == ("ci-gpu", True)
    # The other launch option of the first SKU is on EC2.
    assert list(settings.options) == [("linux.g5.4xlarge.nvidia.gpu", 1), ("linux.rocm.gpu.2", 0)]
    rocm = settings.options[(SkuName("linux.rocm.gpu.2"), 0)]
    assert rocm.accelerator == Accelerator("amd.com/gpu", 2)
    assert (rocm.dollars_per_hour, rocm.quota) == (3.5, "amd.com/gpu{accelerator=mi300x}")
    cuda = settings.options[(SkuName("linux.g5.4xlarge.nvidia.gpu"), 1)]
    assert cuda.accelerator == Accelerator("nvidia.com/gpu", 1)
    assert cuda.resources == {"cpu": "14", "memory": "56Gi", "ephemeral-storage": "150Gi"}


@pytest.mark.parametrize(
    ("section", "context", "kubeconfig"),
    [
        ("{namespace: n}", None, None),
        ("{context: c, namespace: n}", "c", None),
        ("{kubeconfig: cluster.yaml, namespace: n}", None, "cluster.yaml"),
        ("{context: c, kubeconfig: cluster.yaml, namespace: n}", "c", "cluster.yaml"),
    ],
)
def test_where_the_credentials_come_from(
    folder: Folder, section: str, context: str | None, kubeconfig: str | None
) -> None:
    (folder.path / "cluster.yaml").write_text(KUBECONFIG)
    settings = translated(configured(folder, section=section.strip("{}")))
    expected = folder.path / kubeconfig if kubeconfig is not None else None
    assert (settings.context, settings.kubeconfig) == (context, expected)


KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: k, user: u}}]
clusters: [{name: k, cluster: {server: "https://127.0.0.1:6443"}}]
users: [{name: u, user: {token: t}}]
"""


@pytest.mark.parametrize(
    ("keys", "wait"),
    [("", 900.0), (", pending_timeout: 5m", 300.0), (", provisioner: false", 0.0)],
)
def test_the_boot_deadline_of_pods_is_later_by_their_wait_for_a_node(
    folder: Folder, keys: str, wait: float
) -> None:
    configuration = configured(folder, section=f"namespace: n{keys}")
    sku = catalogue(configuration, INSTALLATIONS, [], {}).skus[SkuName("gpu")]
    assert [option.longest_wait for option in sku.launch_options] == [wait]
    settings = translated(configuration)
    assert settings.pending_timeout == (wait or 900.0)


def test_the_keys_of_the_section_have_an_effect(folder: Folder) -> None:
    keys = "namespace: pods, service_account: job, provisioner: false"
    settings = translated(configured(folder, section=keys))
    found = (settings.namespace, settings.service_account, settings.provisioner)
    assert found == ("pods", "job", False)


def test_the_keys_of_a_pod_have_an_effect(folder: Folder) -> None:
    pod = (
        'image: i, resources: {cpu: "2", ephemeral-storage: 40Gi}, node_selector: {pool: gpu}, '
        "tolerations: [{key: dedicated, value: ci, effect: NoSchedule}, {key: spot}], "
        "runtime_class: nvidia, topology_spread: [topology.kubernetes.io/zone], "
        "overlay: {metadata: {labels: {team: ml}}, spec: {priorityClassName: low}}"
    )
    configuration = configured(folder, pod, "arch: arm64\n    disk_gb: 100")
    settings = translated(configuration)
    found = settings.options[(SkuName("gpu"), 0)]
    assert found.arch is Architecture.ARM64
    template = pod_template(settings, found, make_order(sku=found.sku))
    spec = template["spec"]
    assert template["metadata"]["labels"]["team"] == "ml"
    assert spec["priorityClassName"] == "low"
    assert spec["nodeSelector"] == {
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "arm64",
        "pool": "gpu",
    }
    assert spec["tolerations"] == [
        {"key": "dedicated", "operator": "Equal", "value": "ci", "effect": "NoSchedule"},
        {"key": "spot", "operator": "Exists"},
    ]
    assert spec["runtimeClassName"] == "nvidia"
    assert spec["topologySpreadConstraints"] == [
        {
            "maxSkew": 1,
            "topologyKey": "topology.kubernetes.io/zone",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"gpu-runner-autoscaler/fleet": "ci"}},
        }
    ]
    for container in (*spec["initContainers"], *spec["containers"]):
        # The pod's own size of the disk counts, not the SKU's.
        expected = {"cpu": "2", "ephemeral-storage": "40Gi"}
        assert container["resources"] == {"requests": expected, "limits": expected}


def test_the_disk_of_the_sku_is_the_pod_s_ephemeral_storage(folder: Folder) -> None:
    assert option(folder, sku="disk_gb: 100").resources == {"ephemeral-storage": "100Gi"}
    assert option(folder).resources == {}


def test_accelerators_have_the_resource_of_their_vendor_or_the_named_one(folder: Folder) -> None:
    amd = "accelerator: {vendor: amd, count: 1}"
    assert option(folder, sku=amd).accelerator == Accelerator("amd.com/gpu", 1)
    partition = option(folder, "image: i, accelerator_resource: amd.com/dpx_nps2", amd)
    assert partition.accelerator == Accelerator("amd.com/dpx_nps2", 1)
    assert partition.quota == "amd.com/dpx_nps2"
    nvidia = option(folder, sku="accelerator: {vendor: nvidia, count: 8}")
    assert nvidia.accelerator == Accelerator("nvidia.com/gpu", 8)
    assert option(folder).accelerator is None


def test_every_vendor_has_a_resource() -> None:
    assert set(VENDOR_RESOURCES) == set(AcceleratorVendor)


def test_two_launch_options_of_a_sku_have_offerings_of_their_own(folder: Folder) -> None:
    """A failure puts a hold on one offering, and the other one is tried."""
    second = "image: i}}\n      - {provider: cluster, pod: {image: j"
    settings = translated(configured(folder, second))
    assert [(key, one.shape) for key, one in settings.options.items()] == [
        (("gpu", 0), "gpu"),
        (("gpu", 1), "gpu.2"),
    ]


@pytest.mark.parametrize(
    ("written", "mode"),
    [
        (
            "{dind: {image: d, resources: {cpu: '2'}}}",
            dind("d", {"cpu": "2"}),
        ),
        ("{kubernetes: {service_account: hooks}}", hooks("hooks")),
        (
            "{kubernetes: {service_account: hooks, work_volume: {size: 20Gi}}}",
            hooks("hooks", "20Gi"),
        ),
        (
            "{kubernetes: {service_account: hooks, work_volume: {size: 1Gi, storage_class: s}}}",
            hooks("hooks", "1Gi", "s"),
        ),
    ],
    ids=["dind", "copied", "shared", "class"],
)
def test_a_container_mode_reaches_the_pod(
    folder: Folder, written: str, mode: ContainerMode
) -> None:
    settings = translated(configured(folder, f"image: i, container_mode: {written}"))
    assert settings.options[(SkuName("gpu"), 0)].container_mode == mode
