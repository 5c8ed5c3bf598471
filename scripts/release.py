"""Checks the version of a release, and builds its files. The release workflow and `make release-check` run it.

    python -m scripts.release version [TAG]
    python -m scripts.release notes
    python -m scripts.release build FOLDER [--helm PROGRAM --registry REGISTRY]

`version` prints the version if all files agree on it. With TAG, that tag must be able to become a release.
`notes` prints the section of the version in CHANGELOG.md. `build` writes the wheel, the sdist, their bill of
materials and SHA256SUMS, and with `--helm` also the chart, whose image is REGISTRY/gpu-runner-autoscaler.
The same commit gives the same bytes, except for the chart: Helm writes the time into it.
"""

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import yaml

from scripts.spdx import bill_of_materials

ROOT = Path(__file__).parents[1]
NAME = "gpu-runner-autoscaler"
CHART = Path("deploy", "helm", NAME)
SUMS = "SHA256SUMS"


class ReleaseError(Exception):
    """The release cannot be built. The message says what is wrong, where, and what to do."""


def version(root: Path, tag: str | None = None) -> str:
    """Return the version on which all files agree.

    With a tag, the changelog needs a dated section of this version and nothing below [Unreleased].
    Raises ReleaseError.
    """
    chart = yaml.safe_load((root / CHART / "Chart.yaml").read_text())
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    [locked] = [one for one in _locked(root) if one["name"] == NAME]
    found = {
        "pyproject.toml: version": project["version"],
        "uv.lock: version": locked["version"],
        f"{CHART}/Chart.yaml: version": chart["version"],
        f"{CHART}/Chart.yaml: appVersion": str(chart["appVersion"]),
    }
    if tag is not None:
        found["tag"] = tag.removeprefix("v") if tag.startswith("v") else f"{tag} (without a v)"
    if len(set(found.values())) > 1:
        listed = "\n".join(f"  {where}: {value}" for where, value in found.items())
        raise ReleaseError(f"these must be the same version:\n{listed}")
    if tag is not None:
        notes(root, project["version"])
        if section(root, "Unreleased"):
            raise ReleaseError(
                "CHANGELOG.md: [Unreleased] has entries; move them to the section of this version"
            )
    return str(project["version"])


def notes(root: Path, released: str) -> str:
    """Return the section of a version in the changelog. Raises ReleaseError if it has none."""
    found = section(root, released)
    if not found:
        raise ReleaseError(
            f"CHANGELOG.md has no section of this version; write: ## [{released}] - DATE"
        )
    return found


def section(root: Path, name: str) -> str:
    """Return the text below the heading of a version in the changelog, or an empty one."""
    date = "" if name == "Unreleased" else r" - \d{4}-\d\d-\d\d"
    heading = rf"^## \[{re.escape(name)}\]{date}\n(.*?)(?=^## \[|^\[[^\]]+\]: |\Z)"
    found = re.search(heading, (root / "CHANGELOG.md").read_text(), re.MULTILINE | re.DOTALL)
    return found[1].strip() if found else ""


def build(root: Path, folder: Path, helm: str | None = None, registry: str | None = None) -> None:
    """Write the files of the release into an empty folder. Raises ReleaseError and CalledProcessError."""
    released = version(root)
    build_distributions(root, folder)
    if helm is not None:
        if registry is None:
            raise ReleaseError("--helm needs --registry, such as ghcr.io/acme")
        package_chart(root, folder, helm, registry)
    files = sorted(folder.iterdir())
    bill = bill_of_materials(_locked(root), NAME, _commit_time(root), files)
    (folder / f"{NAME}-{released}.spdx.json").write_text(bill)
    write_sums(folder)


def build_distributions(root: Path, folder: Path) -> None:
    """Write the sdist and the wheel. Their files have the time of the commit."""
    folder.mkdir(parents=True, exist_ok=True)
    hatchling = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder.absolute())]
    settings = {**os.environ, "SOURCE_DATE_EPOCH": str(_commit_time(root))}
    subprocess.run(hatchling, cwd=root, env=settings, stdout=subprocess.DEVNULL, check=True)


def package_chart(root: Path, folder: Path, helm: str, registry: str) -> None:
    """Write the chart's package. Its default image is the one of this release in the registry."""
    with tempfile.TemporaryDirectory() as scratch:
        chart = Path(scratch, NAME)
        shutil.copytree(root / CHART, chart)
        values = chart / "values.yaml"
        ours = values.read_text()
        image = f"repository: {registry}/{NAME}"
        changed, count = re.subn(rf"repository: \S+/{NAME}$", image, ours, flags=re.MULTILINE)
        if count != 1:
            raise ReleaseError(f"{CHART}/values.yaml names the image's repository {count} times")
        values.write_text(changed)
        command = [helm, "package", str(chart), "--destination", str(folder.absolute())]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)


def write_sums(folder: Path) -> None:
    """Write the checksums of all files in the folder, for `sha256sum --check`."""
    files = sorted(one for one in folder.iterdir() if one.name != SUMS)
    sums = (f"{hashlib.sha256(one.read_bytes()).hexdigest()}  {one.name}\n" for one in files)
    (folder / SUMS).write_text("".join(sums))


def _locked(root: Path) -> list[dict[str, Any]]:
    packages: list[dict[str, Any]] = tomllib.loads((root / "uv.lock").read_text())["package"]
    return packages


def _commit_time(root: Path) -> int:
    """Return the time of the commit that is checked out, in seconds since 1970."""
    command = ["git", "log", "-1", "--format=%ct"]
    return int(subprocess.run(command, cwd=root, stdout=subprocess.PIPE, check=True).stdout)


def main() -> int:
    """Run a command. Return 1, after one message, if it fails."""
    parser = argparse.ArgumentParser(description="Build a release.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("version").add_argument("tag", nargs="?")
    commands.add_parser("notes")
    building = commands.add_parser("build")
    building.add_argument("folder", type=Path)
    building.add_argument("--helm")
    building.add_argument("--registry")
    given = parser.parse_args()
    try:
        if given.command == "version":
            print(version(ROOT, given.tag))
        elif given.command == "notes":
            print(notes(ROOT, version(ROOT)))
        else:
            build(ROOT, given.folder, given.helm, given.registry)
    except (ReleaseError, subprocess.CalledProcessError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
