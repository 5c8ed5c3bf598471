"""The recipes, and the step `driver` with stand-ins for the agent, nvidia-smi and systemctl."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

LINUX = Path(__file__).parents[2] / "ami" / "linux"
PLAN = {"vendor": "nvidia", "version": "580.178.04"}


class Step:
    """Runs the functions of a copy of the step, whose files are below `folder`."""

    def __init__(self, folder: Path, plan: dict[str, str], shows: str, status: int) -> None:
        self.folder = folder
        shutil.copytree(LINUX, folder / "linux")
        (folder / "linux" / "driver.json").write_text(json.dumps(plan))
        agent = "import shutil, sys\nassert sys.argv[1] == 'install-driver'\n"
        agent += f"shutil.copy(sys.argv[2], {str(folder / 'installed')!r})\nsys.exit({status})\n"
        (folder / "agent.py").write_text(agent)
        (folder / "bin").mkdir()
        # nvidia-smi prints an error and exits with 0 if a GPU has failed.
        for name, text in {
            "nvidia-smi": f"echo '{shows}'",
            "systemctl": f'echo "$*" >> {folder}/services',
            "install": f'case "$1" in -D) exit 0 ;; esac; exec {shutil.which("install")} "$@"',
            "rm": "exit 0",
        }.items():
            (folder / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
            (folder / "bin" / name).chmod(0o755)

    def run(self) -> tuple[int, str]:
        environment = {
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "AGENT": str(self.folder / "agent.py"),
            "IMAGE_BUILD": str(self.folder),
        }
        lines = 'source "$0/lib.sh"; source "$0/steps/driver.sh"; before; apply; after'
        command = ["bash", "-euo", "pipefail", "-c", lines, str(self.folder / "linux")]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        return done.returncode, done.stderr


def test_the_agent_installs_the_driver_of_the_plan(tmp_path: Path) -> None:
    assert Step(tmp_path, PLAN, PLAN["version"], 0).run() == (0, "")
    assert json.loads((tmp_path / "installed").read_text()) == PLAN
    assert "enable runner-gpu.service" in (tmp_path / "services").read_text().splitlines()
    assert (tmp_path / "versions").read_text() == f"driver\t{PLAN['version']}\n"


@pytest.mark.parametrize(
    ("plan", "shows", "status", "why"),
    [
        ({}, PLAN["version"], 0, "driver.json is no plan of NVIDIA's driver"),
        (PLAN, PLAN["version"], 1, "the driver was not installed"),
        (PLAN, "Unable to determine the device handle", 0, "not 580.178.04"),
        (PLAN, "580.95.05", 0, "nvidia-smi shows driver '580.95.05', not 580.178.04"),
    ],
)
def test_a_driver_that_is_not_there_fails_the_step(
    tmp_path: Path, plan: dict[str, str], shows: str, status: int, why: str
) -> None:
    failed, output = Step(tmp_path, plan, shows, status).run()
    assert failed == 1
    assert why in output
    assert not (tmp_path / "versions").exists()


def test_every_recipe_consists_of_steps_and_ends_with_seal() -> None:
    recipes = {one.name: one.read_text().split() for one in (LINUX / "recipes").iterdir()}
    assert set(recipes) == {"linux-cpu", "linux-gpu"}
    for steps in recipes.values():
        assert steps[-1] == "seal"
        assert all((LINUX / "steps" / f"{step}.sh").is_file() for step in steps)
    assert [one for one in recipes["linux-gpu"] if one != "driver"] == recipes["linux-cpu"]
