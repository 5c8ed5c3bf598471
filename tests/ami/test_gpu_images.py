"""The images with a driver, built by Packer and the agent's installer with signed packages."""

import json

import pytest

from tests.ami import gpus
from tests.ami.conftest import Built

DRIVERS = {"linux-gpu": gpus.NVIDIA, "linux-rocm": gpus.AMD}


@pytest.mark.parametrize("recipe", DRIVERS)
def test_the_driver_is_in_the_manifest_and_on_the_images_own_machine(
    gpu_images: dict[str, Built], recipe: str
) -> None:
    built = gpu_images[recipe]
    manifest = json.loads(built.read("/opt/runner-agent/image.json"))
    assert (manifest["recipe"], manifest["versions"]["driver"]) == (recipe, DRIVERS[recipe])
    assert json.loads(built.published.partition(" s: ")[2]) == manifest["versions"]
    assert built.image.tags["autoscaler:image-recipe"] == recipe
    assert built.image.tags["autoscaler:published"]


def test_nvidias_toolkit_has_the_version_of_the_file(gpu_images: dict[str, Built]) -> None:
    built = gpu_images["linux-gpu"]
    packages = json.loads(built.read("/opt/runner-agent/image.json"))["packages"]
    # The repository has 1.21.0, too.
    assert packages["libnvidia-container1"] == packages["nvidia-container-toolkit"] == "1.20.0-1"
    assert "nvidia-container-runtime" in built.read("/etc/docker/daemon.json")


def test_a_service_keeps_nvidias_driver_loaded(gpu_images: dict[str, Built]) -> None:
    units = gpu_images["linux-gpu"].disk / "etc/systemd/system"
    wanted = {one.name for one in (units / "multi-user.target.wants").iterdir()}
    assert "runner-gpu.service" in wanted


def test_the_agent_finds_the_health_check_of_nvidias_gpus(gpu_images: dict[str, Built]) -> None:
    program = gpu_images["linux-gpu"].disk / "opt/runner-agent/health-check"
    assert program.stat().st_mode & 0o777 == 0o755
    assert "cuLaunchKernel" in program.read_text()


def test_rocm_comes_from_amds_repository_and_jobs_find_it(gpu_images: dict[str, Built]) -> None:
    built = gpu_images["linux-rocm"]
    packages = json.loads(built.read("/opt/runner-agent/image.json"))["packages"]
    # The distribution has version 99.0.
    assert packages["rocminfo"] == packages["amd-smi-lib"] == "1.0.70204-93~24.04"
    assert packages["amdgpu-dkms"] == f"1:{gpus.AMD_MODULE}-2390945.24.04"
    assert built.read("/opt/actions-runner/.path").endswith(":/opt/rocm/bin\n")
    assert built.read("/etc/ld.so.conf.d/rocm.conf") == "/opt/rocm/lib\n"
    assert 'KERNEL=="kfd", MODE="0666"' in built.read("/etc/udev/rules.d/70-amdgpu.rules")


@pytest.mark.parametrize("recipe", DRIVERS)
def test_downloads_and_lists_are_not_in_the_image(
    gpu_images: dict[str, Built], recipe: str
) -> None:
    disk = gpu_images[recipe].disk
    left = [str(one.relative_to(disk)) for one in disk.rglob("*") if one.is_file()]
    parts = (".run", ".deb", "var/lib/apt/lists/", "driver.json")
    assert [one for one in left if any(part in one for part in parts)] == []
