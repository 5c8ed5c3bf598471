"""`autoscaler images build`: the command that it prints or runs, and what it refuses."""

import json
import os
import platform
import shlex
import signal
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from autoscaler.cli import commands
from autoscaler.images.load import load_versions
from autoscaler.images.recipes import RECIPES
from tests.images.engines import end_of, recording_engine, slow_engine, started
from tests.images.versions import written

pytestmark = pytest.mark.systems

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "autoscaler" / "images" / "versions.yaml"


def run(*arguments: str | Path) -> Result:
    words = ["images", "build", *(str(part) for part in arguments)]
    return CliRunner(env={"COLUMNS": "200"}).invoke(commands, words)


def printed(*arguments: str | Path) -> list[str]:
    result = run("controller", "--root", ROOT, "--print", *arguments)
    assert (result.exit_code, result.stderr) == (0, "")
    [line] = result.stdout.splitlines()
    return shlex.split(line)


def options(command: list[str]) -> dict[str, list[str]]:
    """The values of each option of a printed command."""
    found: dict[str, list[str]] = {}
    for option, value in pairwise(command):
        if option.startswith("--"):
            found.setdefault(option, []).append(value)
    return found


def test_the_base_image_is_that_of_the_file_with_its_digest() -> None:
    base = load_versions().versions.container_images["controller"]
    command = printed("--platform", "linux/arm64")
    assert command[:2] == ["docker", "build"]
    assert command[-1] == str(ROOT)
    found = options(command)
    assert found["--build-arg"] == [f"BASE={base.reference}@{base.digest}"]
    assert found["--platform"] == ["linux/arm64"]
    assert found["--file"] == [str(ROOT / "docker_images/controller/Dockerfile")]
    assert found["--tag"] == ["gpu-runner-autoscaler:0.1.0"]


def test_labels_say_what_the_image_is_built_from() -> None:
    base = load_versions().versions.container_images["controller"]
    command = ["git", "rev-parse", "HEAD"]
    head = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    labels = dict(one.split("=", 1) for one in options(printed())["--label"])
    revision = labels.pop("org.opencontainers.image.revision", "")
    assert revision.removesuffix("-dirty") == head.stdout.strip()
    assert labels == {
        "org.opencontainers.image.title": "gpu-runner-autoscaler",
        "org.opencontainers.image.version": "0.1.0",
        "org.opencontainers.image.base.name": base.reference,
        "org.opencontainers.image.base.digest": base.digest,
        "gpu-runner-autoscaler/sbom": "/usr/share/sbom.cdx.json",
    }


def test_a_changed_clone_is_labelled_as_such_and_a_folder_without_git_has_no_revision(
    tmp_path: Path,
) -> None:
    recipe = tmp_path / RECIPES["controller"].dockerfile
    recipe.parent.mkdir(parents=True)
    recipe.write_text("ARG BASE\nFROM ${BASE}\n")

    def revision() -> str | None:
        result = run("controller", "--root", tmp_path, "--print")
        labels = options(shlex.split(result.stdout))["--label"]
        return dict(one.split("=", 1) for one in labels).get("org.opencontainers.image.revision")

    assert revision() is None
    who = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    for words in (["init", "-q"], ["add", "."], [*who, "commit", "-q", "-m", "one"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    clean = revision()
    new = tmp_path / "new.py"
    new.touch()
    assert revision() == f"{clean}-dirty"  # it gets into the image, too
    new.unlink()
    recipe.write_text("ARG BASE\nFROM ${BASE}\nUSER 1\n")
    assert clean is not None
    assert len(clean) == 40
    assert revision() == f"{clean}-dirty"


@pytest.mark.parametrize("engine", ["docker", "podman", "buildah"])
def test_the_engine_runs_with_further_options_and_gives_the_exit_status(
    engine: str, tmp_path: Path
) -> None:
    calls = recording_engine(tmp_path, engine, 7)
    words = [
        "controller",
        "--root",
        str(ROOT),
        "--engine",
        engine,
        "--tag",
        "one:1",
        "--tag",
        "two:2",
    ]
    with started(tmp_path, "build", *words, "--", "--push") as process:
        assert end_of(process) == ("", "", 7)
    command = json.loads(calls.read_text())
    assert command[0] == str(tmp_path / engine)
    assert command[1] == "build"
    assert options(command)["--tag"] == ["one:1", "two:2"]
    assert command[-2:] == ["--push", str(ROOT)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("terminal", [True, False], ids=["group", "process"])
def test_the_engine_cleans_up_after_a_signal(tmp_path: Path, number: int, terminal: bool) -> None:
    """A terminal sends a signal to the process group; `kill` sends it to one process."""
    slow_engine(tmp_path, "podman")
    words = ["controller", "--root", str(ROOT), "--engine", "podman"]
    with started(tmp_path, "build", *words) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "running\n"
        (os.killpg if terminal else os.kill)(process.pid, number)
        assert end_of(process) == ("cleaning up\ncleaned up\n", "", 130)


def test_an_engine_that_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    result = run("controller", "--root", ROOT, "--engine", "podman")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        "cannot run podman: No such file or directory; install it, or choose another --engine\n"
    )


def test_a_digest_that_is_null_is_refused_and_nothing_is_printed(tmp_path: Path) -> None:
    digest = load_versions().versions.container_images["controller"].digest
    assert digest is not None
    file = written(tmp_path, SHIPPED.read_text().replace(digest, "null"))
    result = run("controller", "--root", ROOT, "--print", "--file", file)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "container_images.controller.digest: is null: " in result.stderr


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["runner-gpu"], "there is no image 'runner-gpu'; name one of controller"),
        (
            ["controller", "--platform", "linux/s390x"],
            "controller has no platform 'linux/s390x'; name one of linux/amd64, linux/arm64",
        ),
        (
            ["controller", "--root", "/usr"],
            "/usr has no docker_images/controller/Dockerfile; name the root of the repository",
        ),
    ],
)
def test_what_cannot_be_built_is_refused(words: list[str], error: str) -> None:
    result = run("--root", ROOT, "--print", *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(error)


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        ("x86_64", "linux/amd64"),
        ("aarch64", "linux/arm64"),
        ("arm64", "linux/arm64"),
        ("AMD64", "linux/amd64"),
        ("riscv64", "linux/amd64"),
    ],
)
def test_the_platform_of_a_machine(machine: str, expected: str) -> None:
    """`platform.machine()` gives what uname says: aarch64 on Linux, arm64 on macOS; AMD64 on Windows."""
    names = {"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64", "AMD64": "amd64"}
    assert RECIPES["controller"].platform_for(machine) == expected
    own = names.get(platform.machine(), "amd64")
    assert options(printed())["--platform"] == [f"linux/{own}"]
