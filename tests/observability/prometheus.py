"""Finds Prometheus and its promtool: $PROMETHEUS and $PROMTOOL, the PATH, or Debian's package."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path


def prometheus() -> Path:
    """Return the server. Fails with the command that brings it."""
    return _program("prometheus")


def promtool() -> Path:
    """Return the program that checks and tests rules. Fails with the command that brings it."""
    return _program("promtool")


def _program(name: str) -> Path:
    if given := os.environ.get(name.upper()):
        return Path(given)
    if found := shutil.which(name):
        return Path(found)
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(root) / "gpu-runner-autoscaler" / "prometheus"
    if not folder.exists():
        _unpack_package(folder)
    return folder / "usr" / "bin" / name


def _unpack_package(folder: Path) -> None:
    """Unpack Debian's package. Installing it would start a Prometheus on this host."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as name:
        place = Path(name)
        for command in (
            ["apt-get", "download", "-q", "prometheus"],
            ["sh", "-c", "dpkg-deb -x prometheus_*.deb unpacked"],
        ):
            done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
            assert done.returncode == 0, (
                f"Prometheus is missing, and {' '.join(command)} failed: {done.stderr}\n"
                "Install it, or set PROMETHEUS and PROMTOOL to its programs"
            )
        with contextlib.suppress(OSError):  # another test run was faster
            (place / "unpacked").rename(folder)
