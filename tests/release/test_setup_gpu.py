"""The action `setup-gpu`, run as GitHub's runner runs a composite action's step."""

import subprocess
from pathlib import Path

import pytest
import yaml

from scripts.release import ROOT

ACTION = ROOT / "actions" / "setup-gpu"
TWO = "NVIDIA A10G, 23028, 580.178.04\nNVIDIA A10G, 23028, 580.178.04"


def run_step(
    folder: Path,
    listed: str | None,
    count: str = "1",
    memory: str = "0",
    status: int = 0,
    timeout: Path = Path("/usr/bin/timeout"),
) -> subprocess.CompletedProcess[str]:
    """Run the step with a nvidia-smi that prints this; without one if it is None."""
    programs = folder / "programs"
    programs.mkdir()
    for name in ("bash", "env"):
        (programs / name).symlink_to(f"/usr/bin/{name}")
    (programs / "timeout").symlink_to(timeout)
    if listed is not None:
        program = programs / "nvidia-smi"
        program.write_text(f"#!/bin/sh\ncat <<'END'\n{listed}\nEND\nexit {status}\n")
        program.chmod(0o755)
        (programs / "cat").symlink_to("/usr/bin/cat")
    files = {
        name: str(folder / name) for name in ("GITHUB_OUTPUT", "GITHUB_ENV", "GITHUB_STEP_SUMMARY")
    }
    given = {"WANTED_COUNT": count, "WANTED_MEMORY": memory, "GITHUB_ACTION_PATH": str(ACTION)}
    [step] = yaml.safe_load((ACTION / "action.yml").read_text())["runs"]["steps"]
    assert set(step["env"]) == {"WANTED_COUNT", "WANTED_MEMORY"}
    return subprocess.run(
        [programs / "bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
        env={"PATH": str(programs), "RUNNER_NAME": "gpu-1", **given, **files},
        capture_output=True,
        text=True,
        check=False,
    )


def test_it_prints_the_gpus_and_sets_outputs_and_variables(tmp_path: Path) -> None:
    done = run_step(tmp_path, TWO, count="2", memory="23028")
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, TWO, "")
    assert (tmp_path / "GITHUB_OUTPUT").read_text() == "count=2\ndriver=580.178.04\n"
    assert (tmp_path / "GITHUB_ENV").read_text() == "CUDA_DEVICE_ORDER=PCI_BUS_ID\n"
    summary = (tmp_path / "GITHUB_STEP_SUMMARY").read_text().splitlines()
    assert summary[0] == "| GPU of gpu-1 | MiB | driver |"
    assert summary[2:] == ["| NVIDIA A10G | 23028 | 580.178.04 |"] * 2


@pytest.mark.parametrize(
    ("listed", "count", "memory", "status", "reported"),
    [
        (None, "1", "0", 0, "this machine has no nvidia-smi"),
        ("No devices were found", "1", "0", 6, "nvidia-smi failed: No devices were found"),
        (TWO, "3", "0", 0, "this machine has 2 GPUs, and the job needs 3"),
        (TWO, "1", "40000", 0, "NVIDIA A10G has 23028 MiB, and the job needs 40000 MiB"),
        ("NVIDIA A10G, [N/A], 580", "1", "0", 0, "nvidia-smi reports no memory"),
        (TWO, "two", "0", 0, "must be whole numbers"),
        (TWO, "1", "$(id)", 0, "must be whole numbers"),
    ],
)
def test_what_is_missing_fails_the_job(
    tmp_path: Path, listed: str | None, count: str, memory: str, status: int, reported: str
) -> None:
    done = run_step(tmp_path, listed, count, memory, status)
    assert done.returncode == 1
    assert done.stdout.startswith("::error title=GPU::")
    assert reported in done.stdout
    assert [one.name for one in tmp_path.iterdir()] == ["programs"]


def test_a_driver_that_hangs_fails_the_job(tmp_path: Path) -> None:
    """The step runs nvidia-smi under timeout(1), which ends with 124 when the time is over."""
    program = tmp_path / "timeout"
    program.write_text('#!/bin/sh\n[ "$3" = nvidia-smi ] && exit 124\n')
    program.chmod(0o755)
    done = run_step(tmp_path, TWO, timeout=program)
    assert done.returncode == 1
    assert "nvidia-smi did not end in 60 s" in done.stdout
