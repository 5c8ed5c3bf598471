"""No other place of the repository disagrees with versions.yaml."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from autoscaler.config.settings.shapes import Section
from autoscaler.images.entries import ContainerImage, Versions
from autoscaler.images.findings import OLDEST_RUNNER
from autoscaler.images.load import load_versions

ROOT = Path(__file__).parents[2]
PLACES = ("README.md", "ami", "deploy", "docker_images", "docs", "examples", "lab")
BUILDS = ("ami", "docker_images")
"""The recipes of images. Every digest, checksum and version that they contain is from versions.yaml."""

RUNNER = re.compile(r"""actions-runner:([0-9][\w.-]*)|\bRUNNER_VERSION\s*=\s*["']?([0-9][\w.]*)""")
OLDEST = re.compile(r"""\boldest_runner\b.*?=\s*"([0-9.]+)\"""")
TOOLKIT = re.compile(r"\brunner-(cuda|rocm):([0-9.]+)")
PINNED = re.compile(r"[\w./-]+:[\w.-]+@sha256:[0-9a-f]{64}")
CHECKSUM = re.compile(r"(?<![0-9a-f@:])[0-9a-f]{64}(?![0-9a-f])")
DEFAULT = re.compile(
    r"""^\s*(?:ARG \w+=|default\s*=\s*)["']?([0-9]+(?:\.[0-9]+)+)\b""", re.MULTILINE
)


def texts(root: Path, names: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """The path and text of each file in these places."""
    for name in names:
        place = root / name
        for path in [place] if place.is_file() else sorted(place.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield str(path.relative_to(root)), path.read_text(errors="replace")


def values(section: Section) -> Iterator[str]:
    """Every text in versions.yaml, and each container image with its digest."""
    if isinstance(section, ContainerImage):
        yield section.pinned() or ""
    for _, value in section:
        inner = value.values() if isinstance(value, dict) else [value]
        for one in inner:
            if isinstance(one, Section):
                yield from values(one)
            elif isinstance(one, str):
                yield one


def disagreements(root: Path, versions: Versions) -> list[str]:
    """What files of a repository say that versions.yaml does not say."""
    known = set(values(versions))
    wrong = []
    for path, text in texts(root, PLACES):
        runners = [one or other for one, other in RUNNER.findall(text)]
        wrong += [f"{path}: {one}" for one in runners if one != versions.runner.version]
        wrong += [f"{path}: {one}" for one in OLDEST.findall(text) if one != OLDEST_RUNNER]
        for program, tag in TOOLKIT.findall(text):
            if not f"{versions.programs[program].version}.".startswith(f"{tag}."):
                wrong.append(f"{path}: runner-{program}:{tag}")
    for path, text in texts(root, BUILDS):
        found = [one for pattern in (PINNED, CHECKSUM, DEFAULT) for one in pattern.findall(text)]
        wrong += [f"{path}: {one}" for one in found if one not in known]
    return wrong


def test_no_place_disagrees_with_the_file() -> None:
    assert disagreements(ROOT, load_versions().versions) == []


def test_the_values_of_the_file_agree_with_each_other() -> None:
    versions = load_versions().versions
    programs, containers = versions.programs, versions.container_images
    assert programs["nvidia-fabric-manager"].version == programs["nvidia-driver"].version
    expected = {
        "runner": f"ghcr.io/actions/actions-runner:{versions.runner.version}",
        "cuda": f"nvidia/cuda:{programs['cuda'].version}-base-ubuntu24.04",
        "rocm": f"rocm/dev-ubuntu-24.04:{programs['rocm'].version}",
    }
    assert {name: containers[name].reference for name in expected} == expected


def test_the_names_and_addresses_of_the_file_have_its_versions() -> None:
    versions = load_versions().versions
    releases = {"runner": versions.runner, **versions.programs}
    wrong = [
        f"{name}: {file.url}"
        for name, release in releases.items()
        for key, file in release.files.items()
        if file.url
        and key != "repository-key"
        and str(release.version) not in file.url
        # Microsoft's addresses have the checksum of the file.
        and str(file.sha256).upper() not in file.url
    ]
    wrong += [
        f"{name}: {ami}"
        for name, image in versions.machine_images.items()
        for ami in image.names.values()
        if ami and str(image.version) not in ami
    ]
    assert wrong == []


OTHER = "f" * 64
PLANTS = {
    "another runner in a manifest": ("deploy/a.yaml", "image: ghcr.io/actions/actions-runner:2.336.0"),
    "another runner in the lab": ("lab/a.py", 'RUNNER_VERSION = "2.336.0"'),
    "another runner in a Dockerfile": ("docker_images/a/Dockerfile", "ARG RUNNER_VERSION=2.336.0"),
    "another oldest runner": ("lab/a.py", '    oldest_runner: str = "2.300.0"'),
    "another CUDA in an example": ("examples/a.yaml", "image: registry.example/runner-cuda:12.9"),
    "another ROCm in a page": ("docs/a.md", "image: runner-rocm:6.4"),
    "another digest of a base image": (
        "docker_images/a/Dockerfile",
        f"FROM python:3.11.16-slim-bookworm@sha256:{OTHER} AS build",
    ),
    "another checksum in a build argument": ("docker_images/a/Dockerfile", f"ARG SUM={OTHER}"),
    "another checksum in a script": ("ami/install.sh", f"echo '{OTHER}  runner.tar.gz' | sha256sum -c"),
    "another version in a build argument": ("docker_images/a/Dockerfile", "ARG DRIVER=580.95.05"),
    "another version in Packer's template": ("ami/linux.pkr.hcl", '  default     = "580.95.05"'),
}  # fmt: skip


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the places."""
    folder = tmp_path_factory.mktemp("repository")
    for name in PLACES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("*.pyc"))
        elif (ROOT / name).exists():
            shutil.copyfile(ROOT / name, folder / name)
    return folder


@pytest.mark.parametrize(("name", "line"), PLANTS.values(), ids=PLANTS)
def test_a_planted_disagreement_is_found(copy: Path, name: str, line: str) -> None:
    file = copy / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"{line}\n")
    try:
        found = disagreements(copy, load_versions().versions)
    finally:
        file.unlink()
    assert found
    assert {one.partition(": ")[0] for one in found} == {name}
