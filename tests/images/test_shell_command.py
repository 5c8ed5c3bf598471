"""`autoscaler images shell`: the container that it starts, and the environment of the jobs in it."""

import json
import os
import shlex
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from autoscaler.app.preflight import load_for_service
from autoscaler.cli import commands
from autoscaler.config.settings.fleet import JobContainer
from autoscaler.images.recipes import ShellEngine
from autoscaler.images.shells import (
    ENVIRONMENT,
    AmdDevices,
    accelerator_options,
    amd_devices,
    shell_command,
)
from tests.images.engines import end_of, recording_engine, slow_engine
from tests.images.engines import started as running

pytestmark = pytest.mark.systems

ROOT = Path(__file__).parents[2]
PODS = ROOT / "examples" / "kubernetes.yaml"
MACHINES = ROOT / "examples" / "fleet.yaml"
AMD, NVIDIA = "linux.rocm.gpu.mi350.dpx.2", "linux.a100.1"


def run(*arguments: str | Path) -> Result:
    words = ["images", "shell", *(str(part) for part in arguments)]
    return CliRunner(env={"COLUMNS": "200"}).invoke(commands, words)


def printed(sku: str, *arguments: str, file: Path = PODS) -> list[str]:
    result = run(sku, "-c", file, "--print", *arguments)
    assert (result.exit_code, result.stderr) == (0, "")
    return shlex.split(result.stdout)


def changed(folder: Path, sku: str, **pod: object) -> Path:
    """The example with other keys of a SKU's first pod."""
    fleet = yaml.safe_load(PODS.read_text())
    # YAML 1.1, which this reader follows, takes the key `on` for true.
    skus = {name: {"on": one.pop(True), **one} for name, one in fleet["skus"].items()}
    skus[sku]["on"][0]["pod"].update(pod)
    file = folder / "fleet.yaml"
    file.write_text(json.dumps({**fleet, "skus": skus}))
    return file


def test_the_container_has_the_image_user_and_limits_of_the_pod() -> None:
    command = printed(NVIDIA)
    assert command[:3] == ["docker", "run", "--rm"]
    options = dict(pairwise(command))
    assert options["--platform"] == "linux/amd64"
    assert options["--user"] == "1001"
    assert options["--cpus"] == "12"
    assert options["--memory"] == f"{128 * 2**30}b"
    assert options["--shm-size"] == f"{64 * 2**30}b"
    assert {"--cap-drop=ALL", "--security-opt=no-new-privileges", "--gpus=1"} <= set(command)
    assert options["--entrypoint"] == "python3"
    image = "registry.example/runner-cuda:12.8"
    assert command[-6:] == [image, "-I", "-S", "-c", ENVIRONMENT, "bash"]
    assert "--tty" not in command


def test_a_shell_in_a_terminal_has_one_in_the_container() -> None:
    sku = load_for_service(PODS, files=False).settings.skus[NVIDIA]
    container = JobContainer(image="i", user=1001)
    shown = [
        shell_command(ShellEngine.DOCKER, sku, container, ["bash"], terminal=terminal, devices=None)
        for terminal in (True, False)
    ]
    assert [command.count("--tty") for command in shown] == [1, 0]
    assert [one for one in shown[0] if one != "--tty"] == shown[1]


def test_quantities_of_kubernetes_become_numbers(tmp_path: Path) -> None:
    file = changed(tmp_path, NVIDIA, resources={"cpu": "1500m", "memory": "2G"})
    options = dict(pairwise(printed(NVIDIA, file=file)))
    assert (options["--cpus"], options["--memory"]) == ("1.5", "2000000000b")
    file = changed(tmp_path, NVIDIA, resources={})
    assert not {"--cpus", "--memory", "--shm-size"} & set(printed(NVIDIA, file=file))
    file = changed(tmp_path, NVIDIA, resources={}, shared_memory="8Gi")
    assert dict(pairwise(printed(NVIDIA, file=file)))["--shm-size"] == f"{8 * 2**30}b"


def test_the_variables_of_the_overlay_are_set_and_those_of_the_cluster_are_named(
    tmp_path: Path,
) -> None:
    secret = {"secretKeyRef": {"name": "a", "key": "b"}}
    env = [{"name": "HF_HOME", "value": "/cache"}, {"name": "TOKEN", "valueFrom": secret}]
    overlay = {"spec": {"containers": [{"name": "runner", "env": env}]}}
    file = changed(tmp_path, NVIDIA, overlay=overlay)
    result = run(NVIDIA, "-c", file, "--print", "--", "make", "-j")
    assert result.stderr == "TOKEN is not set: only the cluster knows its value\n"
    command = shlex.split(result.stdout)
    assert dict(pairwise(command))["--env"] == "HF_HOME=/cache"
    assert command.count("--env") == 1
    assert command[-3:] == [ENVIRONMENT, "make", "-j"]


DEVICES = AmdDevices(
    ("/dev/dri/renderD128", "/dev/dri/renderD129", "/dev/dri/renderD130"), (44, 992)
)


TWO = [f"--device=/dev/{one}" for one in ("kfd", "dri/renderD128", "dri/renderD129")]


@pytest.mark.parametrize(
    ("sku", "engine", "expected"),
    [
        (AMD, ShellEngine.DOCKER, [*TWO, "--group-add=44", "--group-add=992"]),
        (AMD, ShellEngine.PODMAN, [*TWO, "--group-add=keep-groups"]),
        (NVIDIA, ShellEngine.DOCKER, ["--gpus=1"]),
        (NVIDIA, ShellEngine.PODMAN, ["--device=nvidia.com/gpu=0"]),
        ("linux.arm64.m7g.4xlarge", ShellEngine.DOCKER, []),
    ],
)  # fmt: skip
def test_as_many_accelerators_as_the_sku_has(
    sku: str, engine: ShellEngine, expected: list[str]
) -> None:
    found = load_for_service(PODS, files=False).settings.skus[sku]
    assert accelerator_options(engine, found, DEVICES) == expected
    command = printed(sku, "--without-accelerators", "--engine", engine.value)
    assert not [one for one in command if one.startswith(("--device", "--gpus", "--group-add"))]


def test_amds_devices_are_listed_by_number_with_their_groups(tmp_path: Path) -> None:
    assert amd_devices(tmp_path) == AmdDevices()
    (tmp_path / "kfd").touch()
    own = (tmp_path / "kfd").stat().st_gid
    assert amd_devices(tmp_path) == AmdDevices((), (own,))
    (tmp_path / "dri").mkdir()
    for name in ("dri/renderD1000", "dri/renderD128", "dri/card0"):
        (tmp_path / name).touch()
    nodes = tuple(f"{tmp_path}/dri/renderD{number}" for number in (128, 1000))
    assert amd_devices(tmp_path) == AmdDevices(nodes, (own,))


def started(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """What a command writes that starts as in the container, where `folder` is the runner's."""
    command = [sys.executable, "-I", "-S", "-c", ENVIRONMENT, *words]
    given = {"PATH": os.environ["PATH"], "HOME": "/root", **variables}
    return subprocess.run(
        command, cwd=folder, env=given, capture_output=True, text=True, check=False
    )


def environment(folder: Path, **variables: str) -> dict[str, str]:
    """The variables of a command that starts as in the container."""
    code = "import json, os; print(json.dumps(dict(os.environ)))"
    done = started(folder, sys.executable, "-c", code, **variables)
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, str] = json.loads(done.stdout)
    return found


def test_the_shell_has_the_variables_and_the_search_path_of_a_job(tmp_path: Path) -> None:
    """As the listener reads `.env`: the text after the first `=`, without quotes or expansion."""
    lines = [
        "\ufeffLANG=C.UTF-8",
        "# a comment",
        "",
        'QUOTED="a  b"',
        "DOLLAR=$HOME=1",
        "=none",
        "my-tool=/opt/my tool",
        "1.0=\u00fc",
        "TWICE=1",
        "TWICE=2",
        "GIVEN=",
        "KEPT",
        "LAST=x",
    ]
    (tmp_path / ".env").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / ".path").write_text("/opt/tools/bin:/usr/bin:/bin\n")
    found = environment(tmp_path, GIVEN="by the image", KEPT="by the image", LC_ALL="C.UTF-8")
    expected = {
        "PATH": "/opt/tools/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "QUOTED": '"a  b"',
        "DOLLAR": "$HOME=1",
        "my-tool": "/opt/my tool",
        "1.0": "\u00fc",
        "TWICE": "2",
        "GIVEN": None,
        "KEPT": "by the image",
        "LAST": "x",
        "": None,
        "# a comment": None,
    }
    assert {name: found.get(name) for name in expected} == expected


def test_the_path_in_env_comes_after_that_of_the_file_path(tmp_path: Path) -> None:
    """The listener reads `.env` after its parent has set PATH from `.path` (runsvc.sh, and the agent)."""
    (tmp_path / ".path").write_text("/from/path:/usr/bin")
    assert environment(tmp_path)["PATH"] == "/from/path:/usr/bin"
    (tmp_path / ".env").write_text("PATH=/from/env:/usr/bin:/bin\n")
    assert environment(tmp_path)["PATH"] == "/from/env:/usr/bin:/bin"
    (tmp_path / ".env").unlink()
    (tmp_path / ".path").write_text("/two\n/lines")
    assert environment(tmp_path)["PATH"] == os.environ["PATH"]


def test_an_image_without_these_files_gets_the_shell_too(tmp_path: Path) -> None:
    done = started(tmp_path, "sh", "-c", 'echo "$PATH"; exit 7')
    assert (done.returncode, done.stdout.strip(), done.stderr) == (7, os.environ["PATH"], "")


@pytest.mark.parametrize(("command", "status"), [("absent-command", 127), ("./file", 126)])
def test_a_command_that_cannot_start_has_the_exit_status_of_a_shell(
    tmp_path: Path, command: str, status: int
) -> None:
    (tmp_path / "file").touch(0o600)
    done = started(tmp_path, command)
    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr.startswith(f"{command}: ")
    assert "Traceback" not in done.stderr


def test_the_engine_runs_and_gives_the_exit_status(tmp_path: Path) -> None:
    calls = recording_engine(tmp_path, "podman", 5)
    words = [NVIDIA, "-c", str(PODS), "--engine", "podman"]
    with running(tmp_path, "shell", *words, "--", "nvidia-smi") as process:
        assert end_of(process) == ("", "", 5)
    expected = printed(NVIDIA, "--engine", "podman", "--", "nvidia-smi")
    assert json.loads(calls.read_text())[1:] == expected[1:]


def test_ctrl_c_lets_the_engine_remove_its_container(tmp_path: Path) -> None:
    slow_engine(tmp_path, "docker")
    with running(tmp_path, "shell", NVIDIA, "-c", PODS, "--", "nvidia-smi") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "running\n"
        os.killpg(process.pid, signal.SIGINT)
        assert end_of(process) == ("cleaning up\ncleaned up\n", "", 130)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (
            ["linux.g6"],
            "fleet.yaml has no SKU 'linux.g6'; name one of linux.g5.4xlarge.nvidia.gpu, ",
        ),
        (
            ["windows.g4dn.xlarge"],
            "windows.g4dn.xlarge runs on machines from the image autoscaler/windows-gpu-x64-* (self): "
            "g4dn.xlarge (on-demand) at us-east-1. It has no container to open a shell in; ",
        ),
    ],
)
def test_what_has_no_shell_is_refused(words: list[str], error: str) -> None:
    result = run(*words, "-c", MACHINES)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(error)
