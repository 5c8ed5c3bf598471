"""The recipes, and the step `driver` with stand-ins for the agent, the vendors' programs and systemctl."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from autoscaler.images.baking import MACHINE_RECIPES
from autoscaler.model.catalogue import OperatingSystem

LINUX = Path(__file__).parents[2] / "ami" / "linux"
LINUX_RECIPES = {
    name: recipe
    for name, recipe in MACHINE_RECIPES.items()
    if recipe.platform is OperatingSystem.LINUX
}
PLANS = {
    "linux-gpu": {"vendor": "nvidia", "version": "580.178.04"},
    "linux-rocm": {"vendor": "amd", "version": "30.30.3"},
}
PROGRAMS = {
    "nvidia-smi": "580.178.04",
    "dpkg-query": "1:6.16.13.30300300-2327507.24.04",
    "rocminfo": "  Device Type:             GPU",
    "amd-smi": '[{"asic": {"target_graphics_version": "gfx1011"}}]',
}
"""What each program prints, and of each the part on which the step depends."""


class Step:
    """Runs the functions of a copy of the step, whose files are below `folder`.

    `prints` are texts of programs, in place of those of PROGRAMS; `loaded` is the version of the loaded module.
    """

    def __init__(
        self, folder: Path, status: int = 0, loaded: str = "6.16.13", **prints: str
    ) -> None:
        self.folder = folder
        shutil.copytree(LINUX, folder / "linux")
        agent = "import shutil, sys\nassert sys.argv[1] == 'install-driver'\n"
        agent += f"shutil.copy(sys.argv[2], {str(folder / 'installed')!r})\nsys.exit({status})\n"
        (folder / "agent.py").write_text(agent)
        (folder / "module").mkdir()
        if loaded:
            (folder / "module" / "version").write_text(loaded + "\n")
        programs = {
            "systemctl": f'echo "$*" >> {folder}/services',
            "install": f'case "$1" in -D) exit 0 ;; esac; exec {shutil.which("install")} "$@"',
            "rm": "exit 0",
        }
        # They print an error and exit with 0 if a GPU has failed.
        for name, text in PROGRAMS.items():
            programs[name] = f"cat << 'END'\n{prints.get(name.replace('-', '_'), text)}\nEND"
        (folder / "bin").mkdir()
        for name, text in programs.items():
            (folder / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
            (folder / "bin" / name).chmod(0o755)

    def run(self, recipe: str, plan: dict[str, str]) -> tuple[int, str]:
        (self.folder / "linux" / "driver.json").write_text(json.dumps(plan))
        environment = {
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "AGENT": str(self.folder / "agent.py"),
            "IMAGE_BUILD": str(self.folder),
            "IMAGE_RECIPE": recipe,
            "ROCM": str(self.folder),
            "MODULE": str(self.folder / "module"),
        }
        # The machine of these tests has no place for what a vendor sets up. tests/ami builds it.
        lines = 'source "$0/lib.sh"; source "$0/steps/driver.sh"; load_vendor; '
        lines += "load_vendor() { :; }; set_up_driver() { :; }; before; apply; after"
        command = ["bash", "-euo", "pipefail", "-c", lines, str(self.folder / "linux")]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        return done.returncode, done.stderr


@pytest.mark.parametrize("recipe", PLANS)
def test_the_agent_installs_the_driver_of_the_plan(tmp_path: Path, recipe: str) -> None:
    plan = PLANS[recipe]
    assert Step(tmp_path).run(recipe, plan) == (0, "")
    assert json.loads((tmp_path / "installed").read_text()) == plan
    assert (tmp_path / "versions").read_text() == f"driver\t{plan['version']}\n"


@pytest.mark.parametrize(
    ("version", "package", "loaded"),
    [
        ("30.30", "1:6.16.13.30300000-2278356.24.04", "6.16.13"),
        ("31.40.1", "1:6.19.14.31400100-2370000.24.04", "6.19.14.31400100"),
        ("31.50", "1:7.1.3.31500000-2390945.24.04", "7.1.3.31500000"),
        ("31.60", "1:7.1.9.31600000-2403767.26.04", "7.1.9"),
    ],
)
def test_the_forms_of_amds_versions(
    tmp_path: Path, version: str, package: str, loaded: str
) -> None:
    """In AMD's repository, of the package, and of the loaded module (ROCm/gpu-operator#609)."""
    step = Step(tmp_path, loaded=loaded, dpkg_query=package)
    assert step.run("linux-rocm", {"vendor": "amd", "version": version}) == (0, "")
    assert (tmp_path / "versions").read_text() == f"driver\t{version}\n"


def test_the_service_of_nvidias_driver_starts_at_boot(tmp_path: Path) -> None:
    Step(tmp_path).run("linux-gpu", PLANS["linux-gpu"])
    assert "enable runner-gpu.service" in (tmp_path / "services").read_text().splitlines()


@pytest.mark.parametrize(
    ("recipe", "changes", "why"),
    [
        ("linux-gpu", {"status": 1}, "the driver was not installed"),
        ("linux-gpu", {"nvidia_smi": "Unable to determine the device handle"}, "not 580.178.04"),
        ("linux-gpu", {"nvidia_smi": "580.95.05"}, "driver '580.95.05', not 580.178.04"),
        ("linux-rocm", {"status": 1}, "the driver was not installed"),
        ("linux-rocm", {"loaded": ""}, "driver 'amdgpu is not loaded, of package 1:6.16"),
        ("linux-rocm", {"loaded": "6.12.12"}, "driver 'amdgpu 6.12.12, of package 1:6.16.13"),
        (
            "linux-rocm",
            {"loaded": "6.16.13.30300200"},
            "driver 'amdgpu 6.16.13.30300200, of package 1:6.16.13.30300300",
        ),
        (
            "linux-rocm",
            {"dpkg_query": "1:6.16.13.30300200-2301.24.04"},
            "driver '30.30.2', not 30.30.3",
        ),
        ("linux-rocm", {"rocminfo": "ROCk module is NOT loaded"}, "'rocminfo shows no GPU'"),
        ("linux-rocm", {"amd_smi": "AttributeError: amdsmi"}, "'amd-smi shows no GPU'"),
    ],
)
def test_a_driver_that_is_not_there_fails_the_step(
    tmp_path: Path, recipe: str, changes: dict[str, str], why: str
) -> None:
    failed, output = Step(tmp_path, **changes).run(recipe, PLANS[recipe])  # type: ignore[arg-type]
    assert failed == 1
    assert why in output
    assert not (tmp_path / "versions").exists()


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        ({}, "driver.json is no plan of a driver"),
        ({"vendor": "../nvidia"}, "driver.json is no plan of a driver"),
        (PLANS["linux-gpu"], "driver.json is a plan for linux-gpu, and the recipe is linux-rocm"),
    ],
)
def test_a_plan_for_another_recipe_is_refused(
    tmp_path: Path, plan: dict[str, str], why: str
) -> None:
    failed, output = Step(tmp_path).run("linux-rocm", plan)
    assert (failed, why in output) == (1, True)
    assert not (tmp_path / "installed").exists()


def test_every_recipe_consists_of_steps_and_ends_with_seal() -> None:
    recipes = {one.name: one.read_text().split() for one in (LINUX / "recipes").iterdir()}
    assert set(recipes) == set(LINUX_RECIPES)
    for name, steps in recipes.items():
        assert steps[-1] == "seal"
        assert all((LINUX / "steps" / f"{step}.sh").is_file() for step in steps)
        assert ("driver" in steps) == (LINUX_RECIPES[name].vendor is not None)
        assert [one for one in steps if one != "driver"] == recipes["linux-cpu"]


def test_each_vendor_has_its_file_which_names_its_recipe() -> None:
    for name, recipe in LINUX_RECIPES.items():
        if recipe.vendor is not None:
            text = (LINUX / "vendors" / f"{recipe.vendor}.sh").read_text()
            assert f"DRIVER_RECIPE={name}\n" in text
