"""Where Terraform and its provider come from, and how they are brought. A stand-in plays Terraform."""

import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from lab.terraform import build, parts
from lab.terraform.parts import (
    COMMAND,
    PROVIDER,
    PROVIDER_VERSION,
    PYTHON_PROGRAMS,
    VERSION,
    TerraformMissingError,
    built_mirror,
    built_program,
    find,
    find_mirror,
    find_program,
    find_python_program,
    find_tflint,
    platform_name,
)

ROOT = Path(__file__).parents[2]
TERRAFORM = """#!/bin/sh
cp versions.tf "$CALLS.versions"
plugins="$(sed -n 's/^plugin_cache_dir = "\\(.*\\)"$/\\1/p' "$TF_CLI_CONFIG_FILE")"
[ -z "$FAIL" ] || exit 1
mkdir -p "$plugins/$LAYOUT"
"""
GO = """#!/bin/sh
echo "$*" >> "$CALLS"
[ -z "$FAIL" ] || exit 1
for word; do
  [ "$last" != -o ] || { echo "#!/bin/sh" > "$word"; chmod +x "$word"; }
  last="$word"
done
"""
LAYOUT = f"{PROVIDER}/{PROVIDER_VERSION}/{platform_name()}"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A host with an empty cache and no Terraform."""
    programs = tmp_path / "bin"
    programs.mkdir()
    # `sh` and the others, without what else is in the host's folders.
    path = f"{programs}{os.pathsep}/bin"
    if Path("/bin/terraform").exists():
        pytest.fail("Terraform is in /bin, where this test needs none")
    found = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "HOME": str(tmp_path), "PATH": path}
    return found | {"CALLS": str(tmp_path / "calls"), "FAIL": "", "LAYOUT": LAYOUT}


@pytest.fixture
def releases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The maker's site as a folder, with a stand-in for Terraform in its zip file."""
    folder = tmp_path / "releases" / "terraform" / VERSION
    folder.mkdir(parents=True)
    file = folder / f"terraform_{VERSION}_{platform_name()}.zip"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("LICENSE.txt", "a license")
        archive.writestr("terraform", TERRAFORM)
    monkeypatch.setitem(
        parts.ZIP_SHA256, platform_name(), hashlib.sha256(file.read_bytes()).hexdigest()
    )
    return (tmp_path / "releases").as_uri()


@pytest.fixture
def no_mirror(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host's own mirrors are out of sight."""
    monkeypatch.setattr(parts, "ROOTS", ())


def test_a_missing_program_names_the_command_that_brings_it(environment: dict[str, str]) -> None:
    with pytest.raises(TerraformMissingError, match=f"Terraform is missing; run: {COMMAND}"):
        find(environment)


def test_a_missing_provider_names_the_command_that_brings_it(
    environment: dict[str, str], no_mirror: None
) -> None:
    place_program(environment)
    with pytest.raises(TerraformMissingError, match=rf"aws 5\.100\.0 is missing; run: {COMMAND}"):
        find(environment)


def test_tflint_is_built_once_from_pinned_modules(environment: dict[str, str]) -> None:
    with pytest.raises(TerraformMissingError, match=f"tflint is missing; run: {COMMAND}"):
        find_tflint(environment)
    go = parts.cache(environment) / "build" / "toolchain" / "go" / "bin" / "go"
    go.parent.mkdir(parents=True)
    go.write_text(GO)
    go.chmod(0o755)
    with pytest.raises(subprocess.CalledProcessError):
        build.bring_tflint(environment | {"FAIL": "1"}, lambda _: None)
    built = build.bring_tflint(environment, lambda _: None)
    assert find_tflint(environment) == built
    assert not go.exists()
    # Without a toolchain, another build would fail.
    assert build.bring_tflint(environment, lambda _: None) == built
    (failed, built_with) = Path(environment["CALLS"]).read_text().splitlines()
    assert failed == built_with
    assert built_with.startswith("build -trimpath -mod=readonly ")
    assert (
        "github.com/terraform-linters/tflint v0.64.0 h1:" in (parts.TFLINT / "go.sum").read_text()
    )


@pytest.mark.parametrize(("program", "package"), PYTHON_PROGRAMS.items())
def test_a_missing_program_from_pypi_names_the_command_that_brings_it(
    environment: dict[str, str], program: str, package: str
) -> None:
    with pytest.raises(TerraformMissingError, match=f"{package} is missing; run: {COMMAND}"):
        find_python_program(program, environment)


def test_terraform_on_the_path_is_preferred_to_a_downloaded_one(
    environment: dict[str, str],
) -> None:
    built_program(environment).parent.mkdir(parents=True)
    built_program(environment).write_text(TERRAFORM)
    built_program(environment).chmod(0o755)
    assert find_program(environment) == built_program(environment)
    assert find_program(environment) != place_program(environment) == find_program(environment)


@pytest.mark.parametrize("below", ["", "vendor"])
@pytest.mark.parametrize(
    "content",
    [LAYOUT, f"{PROVIDER}/terraform-provider-aws_{PROVIDER_VERSION}_{platform_name()}.zip"],
)
def test_a_mirror_with_the_pinned_provider_is_found(
    environment: dict[str, str], tmp_path: Path, below: str, content: str
) -> None:
    root = tmp_path / "opt"
    file = root / below / content
    if file.suffix == ".zip":
        file.parent.mkdir(parents=True)
        file.touch()
    else:
        file.mkdir(parents=True)
    assert find_mirror(environment, (root,)) == root / below


def test_a_mirror_with_another_version_is_not_used(
    environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "opt" / PROVIDER / "4.0.0" / platform_name()).mkdir(parents=True)
    assert find_mirror(environment, (tmp_path / "opt",)) is None


def test_what_is_missing_is_brought_once(
    environment: dict[str, str], releases: str, no_mirror: None
) -> None:
    lines: list[str] = []
    found = build.bring(environment, lines.append, releases)
    assert found == find(environment)
    assert (found.program, found.mirror) == (built_program(environment), built_mirror(environment))
    assert (found.mirror / LAYOUT).is_dir()
    assert f'version = "{PROVIDER_VERSION}"' in Path(environment["CALLS"] + ".versions").read_text()
    assert [line.split()[0] for line in lines] == ["Downloading", "Downloading"]
    build.bring(environment, lines.append, releases)
    assert len(lines) == 2


def test_another_file_than_the_pinned_one_is_refused(
    environment: dict[str, str], releases: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(parts.ZIP_SHA256, platform_name(), "0" * 64)
    with pytest.raises(ValueError, match="is not the file that is pinned"):
        build.bring(environment, lambda _: None, releases)
    assert find_program(environment) is None


def test_after_a_failed_download_of_the_provider_no_mirror_is_incomplete(
    environment: dict[str, str], releases: str, no_mirror: None
) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        build.bring(environment | {"FAIL": "1"}, lambda _: None, releases)
    assert not built_mirror(environment).exists()
    build.bring(environment, lambda _: None, releases)
    assert find(environment).mirror == built_mirror(environment)


def test_the_command_prints_the_parts_of_this_host() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lab.terraform.parts"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    here = find()
    assert done.stdout == f"terraform {here.program}\nmirror {here.mirror}\n"


def test_terraform_installs_the_provider_from_the_mirror_alone(tmp_path: Path) -> None:
    """With the real Terraform: it needs no network."""
    here = find()
    (tmp_path / "cli.tfrc").write_text(here.cli_configuration())
    (tmp_path / "main.tf").write_text(
        f'terraform {{\n  required_providers {{\n    aws = {{ source = "{PROVIDER}" }}\n  }}\n}}\n'
    )
    done = subprocess.run(
        [here.program, "init", "-backend=false", "-no-color"],
        cwd=tmp_path,
        env={"TF_CLI_CONFIG_FILE": str(tmp_path / "cli.tfrc"), "PATH": "/bin:/usr/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"Installed hashicorp/aws v{PROVIDER_VERSION}" in done.stdout


def place_program(environment: dict[str, str]) -> Path:
    program = Path(environment["PATH"].partition(os.pathsep)[0]) / "terraform"
    program.write_text(TERRAFORM)
    program.chmod(0o755)
    return program
