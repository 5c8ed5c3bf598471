"""A small versions.yaml for tests, and changed copies of it."""

from pathlib import Path

from autoscaler.images.load import VersionsFile, load_versions

SUM = "0123456789abcdef" * 4

SMALL = """\
runner:
  version: 2.338.0
  released: 2026-10-06
  newest_on: 2026-10-07
  files:
    linux-x64: {url: https://github.com/x.tar.gz, sha256: SUM}
  source: https://github.com/actions/runner/releases
  read_on: 2026-10-08
programs:
  driver:
    branch: "580"
    version: 580.178.04
    end_of_life: {date: 2028-08-04, source: https://docs.nvidia.com/releases.json}
    source: https://docs.nvidia.com/notes
    read_on: 2026-10-08
machine_images:
  linux:
    version: "20260923"
    owner: amazon
    names: {x64: linux-20260923-x64, arm64: linux-20260923-arm64}
    end_of_life: {date: 2029-05-31, source: https://wiki.ubuntu.com/Releases}
    source: https://cloud-images.ubuntu.com/locator
    read_on: 2026-10-08
container_images:
  base:
    reference: ubuntu:24.04
    digest: sha256:SUM
    platforms: {amd64: sha256:SUM}
    end_of_life: {date: 2029-05-31, source: https://wiki.ubuntu.com/Releases}
    source: https://hub.docker.com/_/ubuntu
    read_on: 2026-10-08
""".replace("SUM", SUM)
"""A versions.yaml about which there is nothing to report in October 2026."""


def changed(*replacements: tuple[str, str]) -> str:
    """The small file with each text replaced, which must be there."""
    text = SMALL
    for old, new in replacements:
        assert old in text, old
        text = text.replace(old, new)
    return text


def line_of(text: str, beginning: str) -> int:
    """The number of the only line that begins with this, from 1."""
    [number] = [n for n, one in enumerate(text.splitlines(), 1) if one.startswith(beginning)]
    return number


def written(folder: Path, text: str = SMALL) -> Path:
    """A versions.yaml with this text."""
    file = folder / "versions.yaml"
    file.write_text(text)
    return file


def loaded(folder: Path, *replacements: tuple[str, str]) -> VersionsFile:
    """The small file, changed and read."""
    return load_versions(written(folder, changed(*replacements)))
