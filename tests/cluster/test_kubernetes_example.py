"""A real API server admits the pods of examples/kubernetes.yaml, and the scheduler finds the nodes for them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autoscaler.app.preflight import load_for_service
from autoscaler.model.identifiers import ProviderName, SkuName
from autoscaler.providers.kubernetes.provider import KubernetesProvider
from autoscaler.providers.kubernetes.settings import KubernetesSettings, kubernetes_settings
from tests.cluster.admission import add_priority_class
from tests.cluster.conftest import Place, names_of
from tests.config.fleet_file import KUBERNETES_EXAMPLE, Folder
from tests.providers.doubles import ManualClock, RememberingTelemetry
from tests.providers.kubernetes_pods import with_changes

pytestmark = pytest.mark.asyncio(loop_scope="session")

ROOM = {"cpu": "192", "memory": "2Ti", "ephemeral-storage": "4Ti"}
PARTITION = "amd.com/gpu.compute-memory-partition"
PRODUCT = "amd.com/gpu.product-name"

NODES: dict[str, tuple[dict[str, str], dict[str, str], str]] = {
    "dpx": ({"amd.com/gpu": "16"}, {PARTITION: "dpx_nps2"}, "amd.com/gpu"),
    "mi300": ({"amd.com/gpu": "8"}, {PRODUCT: "AMD_Instinct_MI300X_OAM"}, "amd.com/gpu"),
    "cpx": ({"amd.com/cpx_nps4": "64"}, {}, "amd.com/cpx_nps4"),
    "a100": (
        {"nvidia.com/gpu": "8"},
        {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB"},
        "nvidia.com/gpu",
    ),
    "plain": ({}, {}, ""),
    "arm64": ({}, {"kubernetes.io/arch": "arm64", "topology.kubernetes.io/zone": "a"}, ""),
}
"""Resources, labels and taint of each node. Nothing but the architecture keeps the ARM64 pods from `plain`."""

PODS = [
    ("instinct", "linux.rocm.gpu.mi350.dpx.1", "dpx"),
    ("instinct", "linux.rocm.gpu.mi350.dpx.2", "dpx"),
    ("instinct", "linux.rocm.gpu.mi300.1", "mi300"),
    ("instinct", "linux.rocm.gpu.mi300.cpx.1", "cpx"),
    ("cloud", "linux.a100.1", "a100"),
    ("cloud", "linux.arm64.m7g.4xlarge", "arm64"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def settings_of(folder: Folder, place: Place, provider: str) -> KubernetesSettings:
    """A provider of the example, in the place's namespace, and on nodes of the place only."""
    file = folder.path / "fleet.yaml"
    file.write_text(KUBERNETES_EXAMPLE.read_text())
    settings = load_for_service(file).settings
    found = kubernetes_settings(
        ProviderName(provider), settings, folder.path, place.settings.installations, "0" * 64
    )
    options = {
        key: with_changes(option, node_selector={**option.node_selector, "pool": place.name})
        for key, option in found.options.items()
    }
    mine = place.settings
    return replace(
        found,
        fleet=mine.fleet,
        namespace=mine.namespace,
        context=mine.context,
        kubeconfig=mine.kubeconfig,
        options=options,
    )


async def add_nodes(place: Place) -> None:
    for name, (resources, labels, taint) in NODES.items():
        taints = [{"key": taint, "value": "present", "effect": "NoSchedule"}] if taint else []
        if name == "a100":
            taints.append({"key": "dedicated", "value": "ci", "effect": "NoSchedule"})
        full = {**labels, "pool": place.name}
        await place.admin.add_node(f"{place.name}-{name}", {**ROOM, **resources}, full, taints)


async def add_classes(place: Place) -> None:
    group: dict[str, Any] = {"metadata": {"name": "nvidia"}, "handler": "nvidia"}
    await place.admin.create("/apis/node.k8s.io/v1/runtimeclasses", group)
    await add_priority_class(place, "ci-runners", 1000)


async def test_every_pod_of_the_example_is_admitted_and_gets_its_node(
    place: Place, folder: Folder
) -> None:
    await add_classes(place)
    await add_nodes(place)
    providers = {
        name: KubernetesProvider(
            settings_of(folder, place, name), RememberingTelemetry(), ManualClock()
        )
        for name in ("instinct", "cloud")
    }
    found: dict[str, str] = {}
    for number, (provider, sku, _) in enumerate(PODS):
        order = place.make_order(1, f"example-{number}", SkuName(sku))
        request = await providers[provider].prepare(order)
        assert len((await providers[provider].launch(request)).launched) == 1
        [name] = names_of(request)
        pod = await place.admin.until(place.path(name), lambda one: one["spec"].get("nodeName"))
        found[sku] = pod["spec"]["nodeName"]
    assert found == {sku: f"{place.name}-{node}" for _, sku, node in PODS}
    free = await providers["instinct"].quotas()
    # Its own pods count, too: the ledger subtracts them.
    assert sorted(free.values()) == [8, 16, 64]
    for one in providers.values():
        await one.close()
