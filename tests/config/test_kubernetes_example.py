"""The pods of examples/kubernetes.yaml: AMD's GPUs and partitions, NVIDIA, ARM64."""

from pathlib import Path
from typing import Any

import pytest

from autoscaler.app.preflight import load_for_service
from autoscaler.config import not_in_force
from autoscaler.model.identifiers import InstallationId, Installations, ProviderName, SkuName
from autoscaler.providers.kubernetes.checks.overlays import sample_order
from autoscaler.providers.kubernetes.manifest.pod import pod_template
from autoscaler.providers.kubernetes.settings import KubernetesSettings, kubernetes_settings
from lab.push import read_example
from tests.config.fleet_file import KUBERNETES_EXAMPLE, Folder


@pytest.fixture
def file(folder: Folder) -> Path:
    path = folder.path / "fleet.yaml"
    path.write_text(KUBERNETES_EXAMPLE.read_text())
    return path


def settings_of(file: Path, provider: str) -> KubernetesSettings:
    settings = load_for_service(file).settings
    installations = Installations(InstallationId("f00dface"))
    return kubernetes_settings(
        ProviderName(provider), settings, file.parent, installations, "0" * 64
    )


def spec(file: Path, provider: str, sku: str, option: int = 0) -> dict[str, Any]:
    settings = settings_of(file, provider)
    name = SkuName(sku)
    template = pod_template(settings, settings.options[name, option], sample_order(name, option))
    found: dict[str, Any] = template["spec"]
    return found


def test_the_example_is_accepted_and_wholly_in_force(file: Path) -> None:
    configuration = load_for_service(file)
    assert configuration.warnings == ()
    assert not_in_force(configuration.settings) == []


def test_the_fixed_cluster_has_a_quota_and_the_other_one_waits_for_nodes(file: Path) -> None:
    fixed, cloud = settings_of(file, "instinct"), settings_of(file, "cloud")
    assert (fixed.provisioner, cloud.provisioner, cloud.pending_timeout) == (False, True, 600.0)
    assert {option.quota for option in fixed.options.values()} == {
        "amd.com/gpu{amd.com/gpu.compute-memory-partition=dpx_nps2}",
        "amd.com/gpu{amd.com/gpu.product-name=AMD_Instinct_MI300X_OAM}",
        "amd.com/cpx_nps4",
    }


def test_every_rocm_job_of_the_demo_s_push_has_a_sku_with_its_partitions(file: Path) -> None:
    labels = [one.label for one in read_example().not_replayed if "rocm" in one.label]
    assert labels
    for label in labels:
        limits = spec(file, "instinct", label)["containers"][0]["resources"]["limits"]
        assert limits["amd.com/gpu"] == label.rpartition(".")[2]


def test_a_partition_can_have_a_resource_of_its_own(file: Path) -> None:
    found = spec(file, "instinct", "linux.rocm.gpu.mi300.cpx.1")
    assert found["containers"][0]["resources"]["limits"]["amd.com/cpx_nps4"] == "1"
    assert {"key": "amd.com/cpx_nps4", "operator": "Exists", "effect": "NoSchedule"} in found[
        "tolerations"
    ]


def test_arm64_pods_select_arm64_nodes(file: Path) -> None:
    selector = spec(file, "cloud", "linux.arm64.m7g.4xlarge")["nodeSelector"]
    assert selector["kubernetes.io/arch"] == "arm64"
    assert spec(file, "cloud", "linux.a100.1")["nodeSelector"]["kubernetes.io/arch"] == "amd64"
