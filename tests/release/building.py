"""The stages of `make release-check` that build and install the Python packages. Each returns what it found."""

import filecmp
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from scripts.release import ROOT, build, build_distributions, version

UV = ROOT / ".cache" / "uv" / "bin" / "uv"
"""Where scripts/bootstrap.sh installs uv."""


class StageError(Exception):
    """A stage found a mistake. The message says what is wrong, where, and what to do."""


@dataclass(frozen=True)
class Site:
    """The folder of a check, and what its stages leave for later ones."""

    folder: Path

    @property
    def source(self) -> Path:
        """A clone of the commit: the release contains nothing that is not committed."""
        return self.folder / "source"

    @property
    def dist(self) -> Path:
        """The files of the release."""
        return self.folder / "dist"

    @property
    def programs(self) -> Path:
        """The programs of the environment that has the wheel."""
        return self.folder / "environment" / "bin"

    @property
    def wheel(self) -> Path:
        """The wheel of the release."""
        [found] = self.dist.glob("*.whl")
        return found


def check_versions(site: Site) -> str:
    """Clone the commit, and check that all its files name one version."""
    run("git", "clone", "--quiet", str(ROOT), str(site.source))
    return version(site.source)


def build_files(site: Site) -> str:
    """Build the wheel, the sdist, the bill of materials and the checksums, and check the checksums."""
    build(site.source, site.dist)
    run("sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS", folder=site.dist)
    return ", ".join(
        f"{one.name} ({one.stat().st_size:,} B)" for one in sorted(site.dist.iterdir())
    )


def build_again(site: Site) -> str:
    """Build both packages again from another clone, and the wheel from the sdist: the bytes are the same."""
    clone, again = site.folder / "another-source", site.folder / "again"
    run("git", "clone", "--quiet", str(ROOT), str(clone))
    build_distributions(clone, again)
    _, different, missing = filecmp.cmpfiles(
        site.dist, again, [one.name for one in again.iterdir()], shallow=False
    )
    if different or missing:
        raise StageError(f"two builds of one commit differ: {', '.join([*different, *missing])}")
    [sdist] = again.glob("*.tar.gz")
    unpacked = site.folder / "unpacked"
    unpacked.mkdir()
    run("tar", "--extract", "--strip-components=1", "--file", str(sdist), folder=unpacked)
    build_wheel_of_sdist(unpacked, site.folder / "of-sdist", clone)
    [wheel] = (site.folder / "of-sdist").glob("*.whl")
    if not filecmp.cmp(wheel, site.wheel, shallow=False):
        raise StageError("the wheel that is built from the sdist is not the wheel of the release")
    return "the same bytes from another clone, and the same wheel from the sdist"


def build_wheel_of_sdist(unpacked: Path, folder: Path, clone: Path) -> None:
    """Build the wheel from an unpacked sdist, which has no commit: its files have the clone's time."""
    time = run("git", "log", "-1", "--format=%ct", folder=clone).strip()
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    run(*command, "--directory", str(folder), folder=unpacked, SOURCE_DATE_EPOCH=time)


def install_wheel(site: Site) -> str:
    """Install the wheel into an empty environment, with exactly the packages of the lock file."""
    python = str(site.programs / "python")
    run(str(UV), "venv", "--quiet", "--python", sys.executable, str(site.programs.parent))
    install_packages(site)
    install = [str(UV), "pip", "install", "--quiet", "--python", python]
    run(*install, "--no-deps", str(site.wheel))
    run(str(UV), "pip", "check", "--quiet", "--python", python)
    return f"{len(installed(site))} packages"


def install_packages(site: Site, *options: str) -> None:
    """Install the packages of the lock file that the release needs. `options` are for `uv export`."""
    pins = site.folder / "pins.txt"
    given = ["--frozen", "--no-dev", "--no-emit-project", "--format", "requirements.txt", *options]
    run(str(UV), "export", "--quiet", *given, "--output-file", str(pins), folder=site.source)
    install = [str(UV), "pip", "install", "--quiet", "--python", str(site.programs / "python")]
    run(*install, "--require-hashes", "--requirements", str(pins))


def check_bill(site: Site) -> str:
    """Check that the bill of materials lists every package that was installed, with its version."""
    [path] = site.dist.glob("*.spdx.json")
    bill = json.loads(path.read_text())
    listed = {one["name"]: one["versionInfo"] for one in bill["packages"]}
    wrong = {name: number for name, number in installed(site).items() if listed.get(name) != number}
    if wrong:
        raise StageError(f"{path.name} does not list what was installed: {wrong}")
    if {one["fileName"] for one in bill["files"]} != {
        f"./{one.name}" for one in site.dist.iterdir() if one.suffix in (".whl", ".gz")
    }:
        raise StageError(f"{path.name} does not list the files of the release")
    return f"{len(listed)} packages of {path.name}"


def installed(site: Site) -> dict[str, str]:
    """Return the version of each package in the environment that has the wheel."""
    python = str(site.programs / "python")
    found = run(str(UV), "pip", "list", "--quiet", "--format", "json", "--python", python)
    return {one["name"]: one["version"] for one in json.loads(found)}


def run(*command: str, folder: Path | None = None, **variables: str) -> str:
    """Run a command, and return what it prints. Raises StageError with its output if it fails."""
    settings = {**_environment(), **variables}
    done = subprocess.run(
        command, cwd=folder, env=settings, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise StageError(
            f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout}{done.stderr}"
        )
    return done.stdout


def _environment() -> dict[str, str]:
    """Return this process's variables without those that would lend the environment of the tests."""
    lent = ("PYTHONPATH", "VIRTUAL_ENV", "AUTOSCALER_CONFIG", "UV_PROJECT_ENVIRONMENT")
    return {name: value for name, value in os.environ.items() if name not in lent}
