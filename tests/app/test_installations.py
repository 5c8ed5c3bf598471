"""`driver: install` in fleet.yaml: what its machines are sent, and what `check` refuses."""

from pathlib import Path

import pytest

from autoscaler.app.preflight import load_for_service
from autoscaler.config import Configuration, ConfigurationError, not_in_force
from tests.app.test_translation import checks_of
from tests.config.fleet_file import MINIMAL, Folder
from tests.images.test_driver_plan import FULL, RUN, WINDOWS_EXE
from tests.images.versions import SUM

INSTALL = f"versions_file: own.yaml\n{MINIMAL}    driver: install\n"
NVIDIA = "    accelerator: {vendor: nvidia, count: 1}\n"


def load(folder: Path, text: str, versions: str = FULL) -> Configuration:
    (folder / "own.yaml").write_text(versions)
    Folder(folder)
    (folder / "fleet.yaml").write_text(text)
    return load_for_service(folder / "fleet.yaml")


def problems(folder: Path, text: str, versions: str = FULL) -> list[str]:
    with pytest.raises(ConfigurationError) as refused:
        load(folder, text, versions)
    return [f"{one.key}: {one.what}" for one in refused.value.problems]


def test_machines_are_sent_the_plan_of_the_operators_own_versions_file(tmp_path: Path) -> None:
    configuration = load(tmp_path, INSTALL + NVIDIA)
    checks = checks_of(configuration)
    assert (checks["driver"]["url"], checks["driver"]["sha256"]) == (RUN, SUM)
    assert checks["driver"]["budget_s"] == 0.9 * 45 * 60
    assert not_in_force(configuration.settings) == []


def test_the_toolkit_is_tested_with_the_image_of_fleet_yaml(tmp_path: Path) -> None:
    image = f"registry.corp:5000/base/Ubuntu:24.04@sha256:{SUM}".lower()
    checks = checks_of(load(tmp_path, f"driver_test_image: {image}\n{INSTALL}{NVIDIA}"))
    assert checks["driver"]["toolkit"]["image"] == image


@pytest.mark.parametrize("image", ["https://registry/ubuntu", "Ubuntu", "--privileged", "a b"])
def test_a_malformed_image_of_the_test_is_refused(tmp_path: Path, image: str) -> None:
    [problem] = problems(tmp_path, f'driver_test_image: "{image}"\n{INSTALL}{NVIDIA}')
    assert problem.startswith("driver_test_image: ")
    assert problem.endswith("is not an image reference")


def test_the_budget_ends_before_the_deadline_of_the_health_checks(tmp_path: Path) -> None:
    text = INSTALL + NVIDIA + "    deadlines: {health_checks: 20m}\n"
    checks = checks_of(load(tmp_path, text))
    assert checks["driver"]["budget_s"] == 1080


def test_a_preinstalled_driver_sends_nothing(tmp_path: Path) -> None:
    configuration = load(tmp_path, INSTALL.replace("install\n", "preinstalled\n") + NVIDIA)
    checks = checks_of(configuration)
    assert "driver" not in checks


def test_machines_with_windows_are_sent_the_installer_for_windows(tmp_path: Path) -> None:
    configuration = load(tmp_path, INSTALL + NVIDIA + "    os: windows\n")
    checks = checks_of(configuration)
    assert (checks["driver"]["version"], checks["driver"]["url"]) == ("582.78", WINDOWS_EXE)
    assert not_in_force(configuration.settings) == []


def test_a_null_is_an_error_of_the_sku(tmp_path: Path) -> None:
    null = FULL.replace(f"{RUN}, sha256: {SUM}", f"{RUN}, sha256: null")
    [problem] = problems(tmp_path, INSTALL + NVIDIA, null)
    assert problem.startswith(f"skus.gpu.driver: {tmp_path}/own.yaml cannot be used: ")
    assert "programs.nvidia-driver.files.linux-x64.sha256 is null" in problem


def test_the_architecture_of_the_sku_chooses_the_file(tmp_path: Path) -> None:
    text = (INSTALL + NVIDIA + "    arch: arm64\n").replace("g5.xlarge", "g5g.xlarge")
    [problem] = problems(tmp_path, text)
    assert "programs.nvidia-driver.files.linux-arm64.sha256 is null" in problem


def test_an_accelerator_that_wants_another_driver_is_an_error(tmp_path: Path) -> None:
    wanted = 'accelerator: {vendor: nvidia, count: 1, driver_version: "58"}'
    [problem] = problems(tmp_path, f"{INSTALL}    {wanted}\n")
    assert problem.startswith('skus.gpu.accelerator.driver_version: is "58", and ')
    assert problem.endswith("own.yaml installs 580.178.04")
    load(tmp_path, INSTALL + "    " + wanted.replace("58", "580") + "\n")


def test_the_driver_version_of_amd_is_that_of_its_kernel_module(tmp_path: Path) -> None:
    wanted = 'accelerator: {vendor: amd, count: 1, driver_version: "7.1.3"}'
    text = INSTALL.replace("versions_file: own.yaml\n", "")
    configuration = load(tmp_path, f"{text}    {wanted}\n".replace("g5.xlarge", "g4ad.xlarge"))
    checks = checks_of(configuration)
    assert (checks["driver"]["version"], checks["accelerator"]["driver_version"]) == (
        "31.50",
        "7.1.3",
    )


def test_a_driver_without_an_accelerator_is_an_error(tmp_path: Path) -> None:
    what = "skus.gpu.driver: installs nothing without an accelerator"
    assert problems(tmp_path, INSTALL) == [what]


def test_a_versions_file_is_read_even_if_no_sku_installs_a_driver(tmp_path: Path) -> None:
    text = INSTALL.replace("install\n", "preinstalled\n") + NVIDIA
    assert load(tmp_path, text).warnings == ()
    assert problems(tmp_path, text, FULL.replace("version: 1.20.0", "version: [1]"))
    assert problems(tmp_path, text, "not versions\n")


def test_errors_of_the_versions_file_are_errors_of_the_configuration(tmp_path: Path) -> None:
    assert problems(tmp_path, INSTALL + NVIDIA, FULL.replace("version: 1.20.0", "version: [1]"))
    (tmp_path / "own.yaml").unlink()
    text = (INSTALL + NVIDIA).replace("own.yaml", "lost.yaml")
    [problem] = problems(tmp_path, text)
    assert problem == "versions_file: " + '"lost.yaml" does not exist'


def test_the_files_of_a_configuration_need_not_be_there_for_its_structure(tmp_path: Path) -> None:
    (tmp_path / "fleet.yaml").write_text((INSTALL + NVIDIA).replace("own.yaml", "lost.yaml"))
    configuration = load_for_service(tmp_path / "fleet.yaml", files=False)
    assert configuration.settings.versions_file == "lost.yaml"


STOCK = f"versions_file: own.yaml\n{MINIMAL}".replace('{name: "runner-*"}', "{stock: ubuntu-24.04}")


def test_machines_with_a_stock_image_are_sent_the_runner(tmp_path: Path) -> None:
    checks = checks_of(load(tmp_path, STOCK))
    assert checks["runner"] == {
        "version": "2.338.0",
        "url": "https://github.com/x.tar.gz",
        "sha256": SUM,
        "budget_s": 0.9 * 20 * 60,
    }
    assert "driver" not in checks
    assert checks["disk_gb"] == 4


def test_both_installations_have_the_same_time_together(tmp_path: Path) -> None:
    checks = checks_of(load(tmp_path, STOCK + "    driver: install\n" + NVIDIA))
    assert checks["runner"]["budget_s"] == checks["driver"]["budget_s"] == 0.9 * 55 * 60


def test_a_runner_without_a_checksum_is_refused(tmp_path: Path) -> None:
    text = STOCK + "    arch: arm64\n"
    [found] = problems(tmp_path, text.replace("g5.xlarge", "m7g.large"))
    assert found.startswith("skus.gpu.image.stock: ")
    assert found.endswith("runner.files.linux-arm64 is not in the file")
