"""`autoscaler import`: what it writes and reports, and its exit status."""

import re
import subprocess
import sys
from pathlib import Path

from tests.command_line import SCALE_CONFIG, run
from tests.config.fleet_file import filled


def test_import_writes_skus_to_stdout_and_its_report_to_stderr() -> None:
    result = run("import", SCALE_CONFIG, "--prefix", "lf.")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[1] == "skus:"
    assert "  lf.canary.linux.g5.4xlarge.nvidia.gpu:" in result.stdout.splitlines()
    lines = result.stderr.splitlines()
    assert lines[0].startswith(f"{SCALE_CONFIG}:")
    assert re.fullmatch(r"\d+ keys: \d+ carried over into 10 SKUs, \d+ reported", lines[-1])


def test_import_writes_a_whole_file_that_check_accepts(tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    images = ("--linux-ami", "mine-*|self", "--windows-ami", "win-*")
    result = run("import", SCALE_CONFIG, "--whole", "-o", file, *images)
    assert (result.exit_code, result.stdout) == (0, "")
    checked = run("check", "--skip-files", file)
    assert checked.exit_code == 2
    assert [" is a placeholder; fix: write " in line for line in checked.stderr.splitlines()] == (
        [True] * 5
    )
    file.write_text(filled(file.read_text()))
    checked = run("check", "--skip-files", file)
    assert checked.exit_code == 0
    lines = checked.stderr.splitlines()
    # A variant has its type's extra labels too, and the type stands first.
    winner = '"linux.g5.4xlarge.nvidia.gpu" also has the label'
    assert sum(winner in line for line in lines) == 4
    stock = [line for line in lines if "is a stock image, without GitHub's runner" in line]
    assert len(stock) == len(lines) - 4
    assert any('"win-*" is a stock image' in line for line in stock)
    assert "linux.c7i.large" in checked.stdout
    assert 'image: {name: "win-*", owner: amazon}' in file.read_text()


def test_types_without_an_ami_get_the_images_of_the_recipes() -> None:
    result = run("import", SCALE_CONFIG)
    assert [line for line in result.stderr.splitlines() if line.startswith("no ami")] == [
        "no ami for 3 SKUs: image autoscaler/linux-cpu-x64-*|self",
        "no ami for 1 SKU: image autoscaler/windows-x64-*|self",
    ]


def test_import_does_not_overwrite_a_file(tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_text("mine")
    result = run("import", SCALE_CONFIG, "--output", file)
    assert result.exit_code == 2
    assert f"{file}: cannot be written: File exists; fix: name a new file" in result.stderr
    assert file.read_text() == "mine"


def test_import_strict_writes_nothing_if_a_key_is_not_converted(tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    result = run("import", SCALE_CONFIG, "--strict", "-o", file)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "reported" in result.stderr
    assert not file.exists()
    assert run("import", SCALE_CONFIG, "--strict").stdout == ""
    whole = tmp_path / "scale-config.yml"
    whole.write_text(
        "runner_types: {linux.one: {instance_type: c5.large, os: linux, is_ephemeral: true}}"
    )
    result = run("import", whole, "--strict", "-o", file)
    assert result.exit_code == 0
    assert file.read_text().startswith("# Imported")


def test_import_reports_an_unreadable_file(tmp_path: Path) -> None:
    result = run("import", tmp_path / "gone.yml")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "gone.yml: cannot be read: No such file or directory; fix: " in result.stderr
    result = run("import", SCALE_CONFIG, "--prefix", "lf")
    assert result.exit_code == 2
    assert '--prefix: "lf" is not a prefix of labels' in result.stderr


def test_import_leaves_no_partial_file_on_a_full_disk(tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    command = [
        sys.executable,
        "-B",
        "-m",
        "autoscaler.cli",
        "import",
        str(SCALE_CONFIG),
        "-o",
        str(file),
    ]
    # A limit on the size of files: what a disk does that has room for 1 KiB more.
    done = subprocess.run(
        ["bash", "-c", 'ulimit -f 1 && exec "$@"', "-", *command],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines() == [f"{file}: cannot be written: File too large"]
    assert not file.exists()


def test_import_reports_an_output_path_that_cannot_be_written(tmp_path: Path) -> None:
    result = run("import", SCALE_CONFIG, "-o", tmp_path / "gone" / "fleet.yaml")
    assert result.exit_code == 2
    assert "cannot be written: No such file or directory; fix: name a file that can be written" in (
        result.stderr
    )


def test_the_provider_option_of_import_names_the_provider_of_the_skus() -> None:
    result = run("import", SCALE_CONFIG, "--provider", "mine")
    assert result.stdout.splitlines()[1] == "skus:"
    assert "{provider: mine, " in result.stdout
    assert "{provider: us-east-1, " in run("import", SCALE_CONFIG).stdout
    result = run("import", SCALE_CONFIG, "--provider", "")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("--provider: ")


def test_import_strict_refuses_a_type_that_only_its_variants_complete(tmp_path: Path) -> None:
    file = tmp_path / "scale-config.yml"
    base = "{os: linux, disk_size: 100, variants: {big: {instance_type: c7i.large}}}"
    file.write_text(f"runner_types: {{linux.base: {base}}}")
    result = run("import", file, "--strict")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "skipped: has no instance_type" in result.stderr
