"""The plan of a driver, and `autoscaler images driver`, which prints it."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from autoscaler.cli import commands
from autoscaler.config.problems import ConfigurationError
from autoscaler.config.settings.sku import AcceleratorVendor
from autoscaler.images.commands import Vendor
from autoscaler.images.driver import NotBuiltError, driver_plan
from autoscaler.images.load import load_versions
from autoscaler.model.catalogue import Architecture, OperatingSystem
from tests.images.versions import SUM, changed, written

RUN = "https://us.download.nvidia.com/NVIDIA-Linux-x86_64-580.178.04.run"
WINDOWS_EXE = "https://us.download.nvidia.com/tesla/582.78/driver.exe"
PROGRAMS = f"""\
programs:
  nvidia-driver:
    version: 580.178.04
    files:
      linux-x64: {{url: {RUN}, sha256: {SUM}}}
      linux-arm64: {{url: {RUN}, sha256: null}}
    source: https://docs.nvidia.com/notes
    read_on: 2026-10-08
  nvidia-fabric-manager:
    version: 580.178.04
    files:
      linux-x64: {{url: https://developer.download.nvidia.com/fm.tar.xz, sha256: {SUM}}}
    source: https://docs.nvidia.com/notes
    read_on: 2026-10-08
  nvidia-container-toolkit:
    version: 1.20.0
    files:
      repository-key: {{url: https://nvidia.github.io/libnvidia-container/gpgkey, sha256: {SUM}}}
    source: https://github.com/NVIDIA/nvidia-container-toolkit
    read_on: 2026-10-08
"""
PROGRAMS += f"""\
  nvidia-driver-windows:
    version: "582.78"
    files:
      windows-x64: {{url: {WINDOWS_EXE}, sha256: {SUM}}}
    source: https://docs.nvidia.com/notes
    read_on: 2026-10-08
"""
UBUNTU = f"""\
container_images:
  ubuntu:
    reference: ubuntu:24.04
    digest: sha256:{SUM}
    end_of_life: {{date: 2029-05-31, source: https://wiki.ubuntu.com/Releases}}
    source: https://hub.docker.com/_/ubuntu
    read_on: 2026-10-08
"""
FULL = changed(("programs:\n", PROGRAMS), ("container_images:\n", UBUNTU))
"""A versions.yaml with everything that the driver needs on x64."""

WINDOWS = OperatingSystem.WINDOWS
NVIDIA, LINUX, X64 = AcceleratorVendor.NVIDIA, OperatingSystem.LINUX, Architecture.X64


def plan_of(folder: Path, text: str, architecture: Architecture = X64) -> dict[str, object]:
    return driver_plan(load_versions(written(folder, text)), LINUX, architecture, NVIDIA)


def test_the_plan_has_every_version_and_checksum_of_the_file(tmp_path: Path) -> None:
    assert plan_of(tmp_path, FULL) == {
        "vendor": "nvidia",
        "version": "580.178.04",
        "url": RUN,
        "sha256": SUM,
        "fabric_manager": {
            "url": "https://developer.download.nvidia.com/fm.tar.xz",
            "sha256": SUM,
        },
        "toolkit": {
            "version": "1.20.0",
            "key": {"url": "https://nvidia.github.io/libnvidia-container/gpgkey", "sha256": SUM},
            "image": f"public.ecr.aws/docker/library/ubuntu:24.04@sha256:{SUM}",
        },
    }


@pytest.mark.parametrize("image", ["registry.corp:5000/ubuntu:24.04", "quay.io/acme/ubuntu:24.04"])
def test_the_image_of_the_toolkits_test_comes_from_the_registry_of_the_file(
    tmp_path: Path, image: str
) -> None:
    plan: Any = plan_of(tmp_path, FULL.replace("reference: ubuntu:24.04", f"reference: {image}"))
    assert plan["toolkit"]["image"] == f"{image}@sha256:{SUM}"


def test_windows_has_an_entry_of_its_own_and_gets_neither_fabric_manager_nor_toolkit(
    tmp_path: Path,
) -> None:
    file = load_versions(written(tmp_path, FULL))
    assert driver_plan(file, WINDOWS, X64, NVIDIA) == {
        "vendor": "nvidia",
        "version": "582.78",
        "url": WINDOWS_EXE,
        "sha256": SUM,
        "fabric_manager": None,
        "toolkit": None,
    }
    grid = FULL.replace(
        WINDOWS_EXE, "https://ec2-windows-nvidia-drivers.s3.amazonaws.com/grid-18.4/x.exe"
    )
    with pytest.raises(ConfigurationError, match="is a GRID, vGPU or gaming driver"):
        driver_plan(load_versions(written(tmp_path, grid)), WINDOWS, X64, NVIDIA)


def test_the_file_for_windows_was_not_read_yet() -> None:
    with pytest.raises(ConfigurationError, match=r"nvidia-driver-windows\.files\.windows-x64"):
        driver_plan(load_versions(None), WINDOWS, X64, NVIDIA)


def test_a_null_of_the_driver_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"linux-arm64\.sha256: is null"):
        plan_of(tmp_path, FULL, Architecture.ARM64)


def test_a_null_of_the_toolkit_is_refused_and_a_missing_toolkit_is_not(tmp_path: Path) -> None:
    key = f"gpgkey, sha256: {SUM}"
    with pytest.raises(ConfigurationError, match=r"repository-key\.sha256: is null"):
        plan_of(tmp_path, FULL.replace(key, "gpgkey, sha256: null"))
    without = FULL.replace("nvidia-container-toolkit:", "another-toolkit:")
    assert plan_of(tmp_path, without)["toolkit"] is None


def test_fabric_manager_without_a_checksum_is_not_in_the_plan(tmp_path: Path) -> None:
    null = FULL.replace(f"fm.tar.xz, sha256: {SUM}", "fm.tar.xz, sha256: null")
    assert plan_of(tmp_path, null)["fabric_manager"] is None


def test_fabric_manager_of_another_version_is_refused(tmp_path: Path) -> None:
    begin, other = FULL.split("nvidia-fabric-manager:\n    version: 580.178.04")
    text = f"{begin}nvidia-fabric-manager:\n    version: 575.51.03{other}"
    with pytest.raises(
        ConfigurationError, match=r"is 575.51.03, and the driver is 580.178.04"
    ) as error:
        plan_of(tmp_path, text)
    assert [one.key for one in error.value.problems] == ["programs.nvidia-fabric-manager.version"]


@pytest.mark.parametrize(
    "url",
    [
        "https://ec2-linux-nvidia-drivers.s3.amazonaws.com/grid-18.4/NVIDIA-Linux-x86_64-580.run",
        "https://example.com/NVIDIA-Linux-x86_64-580.95.05-vgpu-kvm.run",
        "https://nvidia-gaming.s3.amazonaws.com/linux/latest/NVIDIA-Linux-x86_64-580.run",
    ],
)
def test_grid_and_gaming_drivers_are_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(ConfigurationError, match="is a GRID, vGPU or gaming driver"):
        plan_of(tmp_path, FULL.replace(RUN, url))


@pytest.mark.parametrize(
    ("platform", "arch", "vendor"),
    [
        (WINDOWS, X64, AcceleratorVendor.AMD),
        (LINUX, Architecture.ARM64, AcceleratorVendor.AMD),
    ],
)
def test_what_the_agent_cannot_install_has_no_plan(
    tmp_path: Path, platform: OperatingSystem, arch: Architecture, vendor: AcceleratorVendor
) -> None:
    with pytest.raises(NotBuiltError):
        driver_plan(load_versions(written(tmp_path, FULL)), platform, arch, vendor)


def test_the_plan_of_amd_has_both_versions_and_the_key_of_the_repositories() -> None:
    plan = driver_plan(load_versions(None), LINUX, X64, AcceleratorVendor.AMD)
    assert (plan["version"], plan["rocm"]) == ("31.50", "7.2.4")
    assert plan["newest_kernel"] == "7.1"
    assert plan["key"]["url"] == "https://repo.radeon.com/rocm/rocm.gpg.key"


def test_the_command_prints_the_plan_with_its_budget(tmp_path: Path) -> None:
    file = str(written(tmp_path, FULL))
    done = CliRunner().invoke(commands, ["images", "driver", "--file", file, "--budget", "1200"])
    assert done.exit_code == 0
    assert json.loads(done.stdout) == {**plan_of(tmp_path, FULL), "budget_s": 1200}


def test_the_command_names_a_null_and_prints_nothing_to_stdout(tmp_path: Path) -> None:
    file = str(written(tmp_path, FULL))
    done = CliRunner().invoke(commands, ["images", "driver", "--arch", "arm64", "--file", file])
    assert (done.exit_code, done.stdout) == (2, "")
    assert "programs.nvidia-driver.files.linux-arm64.sha256: is null" in done.stderr


def test_the_command_prints_the_plan_of_amd() -> None:
    done = CliRunner().invoke(commands, ["images", "driver", "--vendor", "amd"])
    assert done.exit_code == 0
    amd = driver_plan(load_versions(None), LINUX, X64, AcceleratorVendor.AMD)
    assert json.loads(done.stdout) == {**amd, "budget_s": 2430}


def test_the_command_says_that_rocm_is_for_x64_only() -> None:
    words = ["images", "driver", "--vendor", "amd", "--arch", "arm64"]
    done = CliRunner().invoke(commands, words)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == "AMD publishes its driver and ROCm for x64 only, not for arm64\n"


def test_the_command_knows_every_vendor() -> None:
    assert [one.value for one in Vendor] == [one.value for one in AcceleratorVendor]
