"""Errors of a versions.yaml: line, key, problem and fix."""

from pathlib import Path

import pytest

from autoscaler.config import ConfigurationError
from autoscaler.config.importing.runner_keys import read
from autoscaler.images.entries import Reference
from autoscaler.images.load import load_versions
from tests.images.versions import SUM, changed, written


def refused(folder: Path, text: str) -> list[str]:
    """The errors of a file, without its name."""
    file = written(folder, text)
    with pytest.raises(ConfigurationError) as caught:
        load_versions(file)
    return [str(problem).removeprefix(f"{file}:") for problem in caught.value.problems]


DATE_FIX = "write YEAR-MONTH-DAY, such as 2026-11-23"
END = "    end_of_life: {date: 2028-08-04, source: https://docs.nvidia.com/releases.json}\n"
ERRORS = [
    (
        ("version: 580.178.04", "version: 580.1"),
        "programs.driver.version: 580.1 is not text; fix: put it in quotes",
    ),
    (
        ("released: 2026-10-06", "released: 6.10.2026"),
        f'runner.released: "6.10.2026" is not a date; fix: {DATE_FIX}',
    ),
    (
        ("released: 2026-10-06", "released: 2026-13-06"),
        f'runner.released: "2026-13-06" is not a date; fix: {DATE_FIX}',
    ),
    (
        ("version: 2.338.0", "version: latest"),
        'runner.version: "latest" is not a version; fix: write digits and dots, in quotes: "12.8.1"',
    ),
    (
        ("version: 2.338.0", "version: null"),
        "runner.version: has no value; fix: write one: it is required",
    ),
    (
        ("  read_on: 2026-10-08\nprograms", "programs"),
        "runner.read_on: is missing; fix: add the key read_on (The day of reading)",
    ),
    (("newest_on", "newest"), "runner.newest: unknown key; fix: did you mean newest_on?"),
    (
        ("source: https://hub.docker.com/_/ubuntu", "source: hub.docker.com"),
        'container_images.base.source: "hub.docker.com" is not an https URL; '
        "fix: write the whole address, with https://",
    ),
    (
        ("reference: ubuntu:24.04", "reference: ubuntu"),
        'container_images.base.reference: "ubuntu" is not an image with a tag; fix: write NAME:TAG',
    ),
    (
        ("reference: ubuntu:24.04", "reference: ubuntu::24.04"),
        'container_images.base.reference: "ubuntu::24.04" is not an image with a tag; '
        "fix: write NAME:TAG",
    ),
    (
        (f"digest: sha256:{SUM}", "digest: sha256:abc"),
        'container_images.base.digest: "sha256:abc" is not an image digest; '
        "fix: write sha256: and 64 hexadecimal digits",
    ),
    (
        (f"sha256: {SUM}", "sha256: abc"),
        'runner.files.linux-x64.sha256: "abc" is not a SHA-256 checksum; '
        "fix: write its 64 hexadecimal digits",
    ),
    (
        ("arm64: linux", "arm: linux"),
        'machine_images.linux.names.arm: "arm" is not x64 or arm64; fix: did you mean arm64?',
    ),
    (
        ("  base:", "  the base:"),
        'container_images."the base": "the base" is not a name; fix: use a to z, 0 to 9 and - only',
    ),
    (
        (END, ""),
        "programs.driver: has a branch and no end_of_life; fix: write end_of_life: {date, source}",
    ),
    (
        ("newest_on: 2026-10-07", "newest_on: 2026-10-05"),
        "runner: has a newest_on before released; fix: correct one of them",
    ),
    (
        ("  files:\n", "  next: {version: 2.338.0, released: 2026-10-21}\n  files:\n"),
        'runner: has "2.338.0" as next, which is not newer; fix: remove next once images contain it',
    ),
    (
        ("  files:\n", "  next: {version: 2.339.0, released: 2026-10-06}\n  files:\n"),
        "runner: has a next that was released before newest_on; fix: correct one of them",
    ),
    (
        ("programs:\n", "runner: 1\nprograms:\n"),
        "runner: is repeated; the first one is on line 1; fix: rename or remove one of them",
    ),
]


@pytest.mark.case(
    "a versions.yaml with an error: the error has the line, the key and the fix",
    topic="Operators' files",
    source="YAML 1.2.2",
)
@pytest.mark.parametrize(("change", "error"), ERRORS, ids=[error for _, error in ERRORS])
def test_an_error_names_the_key_and_the_fix(
    tmp_path: Path, change: tuple[str, str], error: str
) -> None:
    assert [line.partition(": ")[2] for line in refused(tmp_path, changed(change))] == [error]


def test_all_errors_are_reported_at_once_with_their_lines(tmp_path: Path) -> None:
    text = changed(("version: 2.338.0", "version: v2"), ("owner: amazon", "owner: aws"))
    lines = [text.splitlines().index(one) + 1 for one in ("  version: v2", "    owner: aws")]
    assert [int(line.split(":")[0]) for line in refused(tmp_path, text)] == lines


def test_a_missing_or_empty_file_is_reported(tmp_path: Path) -> None:
    assert "is empty; fix: start from the file of this project" in refused(tmp_path, "")[0]
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        load_versions(tmp_path / "gone.yaml")


def test_the_file_of_this_project_is_read_without_a_path() -> None:
    found = load_versions()
    assert found.document.file.endswith("/autoscaler/images/versions.yaml")
    assert set(found.versions.runner.files) == {"linux-x64", "linux-arm64", "windows-x64"}


@pytest.mark.parametrize("name", ["ubuntu:24.04", "localhost:5000/team/my_image:1.2-rc.1"])
def test_the_name_of_an_image_may_have_a_port_and_an_underscore(name: str) -> None:
    assert read(Reference, name) == name
