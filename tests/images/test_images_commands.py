"""`autoscaler images check` and `autoscaler images values`: output and exit status."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from autoscaler.cli import commands
from tests.images.versions import SUM, changed, line_of, written

ROOT = Path(__file__).parents[2]
NULL = changed((f"digest: sha256:{SUM}", "digest: null"))
AT = line_of(NULL, "    digest: null")


def run(*arguments: str | Path) -> Result:
    words = ["images", *(str(part) for part in arguments)]
    return CliRunner(env={"COLUMNS": "200"}).invoke(commands, words)


def test_check_of_a_file_without_findings_exits_with_0(tmp_path: Path) -> None:
    result = run("check", "--file", written(tmp_path), "--date", "2026-10-08")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "nothing is missing or too old\n"


def test_check_lists_findings_with_their_lines_and_exits_with_1(tmp_path: Path) -> None:
    file = written(tmp_path, NULL)
    result = run("check", "--file", file, "--date", "2028-08-01")
    assert (result.exit_code, result.stderr) == (1, "")
    null, runner, end = result.stdout.splitlines()
    assert null.startswith(f"{file}:{AT}: container_images.base.digest: is null: ")
    assert runner.startswith(f"{file}:4: warning: runner.newest_on: 2.338.0 was the newest ")
    assert end.startswith(f"{file}:13: warning: programs.driver.end_of_life.date: its end of life ")
    assert all("; fix: " in line for line in (null, runner, end))


@pytest.mark.parametrize("command", [["check"], ["values", "A=runner.version"]])
def test_a_file_with_errors_exits_with_2(tmp_path: Path, command: list[str]) -> None:
    file = written(tmp_path, changed(("version: 2.338.0", "version: v2")))
    result = run(*command, "--file", file)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"{file}:2: runner.version: ")


def test_a_date_that_is_none_exits_with_2() -> None:
    refused = run("check", "--date", "tomorrow")
    assert (refused.exit_code, "is not a day such as 2026-11-24" in refused.stderr) == (2, True)


def test_values_prints_lines_for_a_build(tmp_path: Path) -> None:
    keys = (
        "VERSION=runner.version",
        "SUM=runner.files.linux-x64.sha256",
        "RELEASED=runner.released",
        "BASE=container_images.base",
        "AMI=machine_images.linux.names.arm64",
    )
    result = run("values", "--file", written(tmp_path), *keys)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [
        "VERSION=2.338.0",
        f"SUM={SUM}",
        "RELEASED=2026-10-06",
        f"BASE=ubuntu:24.04@sha256:{SUM}",
        "AMI=linux-20260923-arm64",
    ]


def test_values_prints_an_object_for_packer(tmp_path: Path) -> None:
    keys = ("driver=programs.driver.version", "branch=programs.driver.branch")
    result = run("values", "--format", "json", "--file", written(tmp_path), *keys)
    assert json.loads(result.stdout) == {"driver": "580.178.04", "branch": "580"}


@pytest.mark.parametrize("key", ["container_images.base", "container_images.base.digest"])
def test_values_refuses_null_and_prints_nothing_else(tmp_path: Path, key: str) -> None:
    file = written(tmp_path, NULL)
    result = run("values", "--file", file, "VERSION=runner.version", f"BASE={key}")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        f"{file}:{AT}: container_images.base.digest: is null: it was not read yet, and no build may "
        "use it; fix: read it at https://hub.docker.com/_/ubuntu, and write it here\n"
    )


@pytest.mark.parametrize(
    ("key", "error"),
    [
        ("runner.vershon", "runner.vershon: is not in the file; fix: did you mean version?"),
        ("programs.drivers.version", "programs.drivers: is not in the file; fix: did you mean driver?"),
        ("runner.next.version", "runner.next: is not in the file; fix: name one of "),
        ("runner.version.major", "runner.version.major: is not in the file; fix: name runner.version"),
        ("runner.files", "runner.files: is not a single value; fix: name one of its keys: linux-x64"),
        ("machine_images", "machine_images: is not a single value; fix: name one of its keys: linux"),
    ],
)  # fmt: skip
def test_values_names_a_key_that_is_no_value(tmp_path: Path, key: str, error: str) -> None:
    result = run("values", "--file", written(tmp_path), f"A={key}")
    assert (result.exit_code, result.stdout) == (2, "")
    assert error in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "NAME=KEY..."),
        (["runner.version"], "NAME=KEY: 'runner.version' is not NAME=KEY"),
        (["A="], "NAME=KEY: 'A=' is not NAME=KEY"),
        (["A=b", "A=c"], "NAME=KEY: A is there twice"),
        (["1=b"], "NAME=KEY: '1=b' is not NAME=KEY"),
        (["A=b c"], "NAME=KEY: 'A=b c' is not NAME=KEY"),
    ],
)
def test_values_refuses_an_invalid_command_line(words: list[str], said: str) -> None:
    result = run("values", *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Error" in result.stderr
    assert said in result.stderr


def test_the_wheel_contains_the_file_that_the_commands_read(tmp_path: Path) -> None:
    """Runs the command from the wheel, outside of the repository."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    [wheel] = tmp_path.glob("*.whl")
    installed = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
        folders = {name.partition("/")[0] for name in archive.namelist()}
    packages = {name for name in folders if not name.endswith((".dist-info", ".data"))}
    assert packages == {"autoscaler", "lab"}
    code = "import sys; from autoscaler.cli import main; sys.argv[0] = 'autoscaler'; main()"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, "images", "values", "VERSION=runner.version"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == run("values", "VERSION=runner.version").stdout
