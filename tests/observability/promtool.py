"""Finds promtool, which tests Prometheus' rules: $PROMTOOL, the PATH, or Debian's package, not installed."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path


def promtool() -> Path:
    """Return the program. Fails with the command that brings it."""
    if given := os.environ.get("PROMTOOL"):
        return Path(given)
    if found := shutil.which("promtool"):
        return Path(found)
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(root) / "gpu-runner-autoscaler" / "prometheus"
    if not folder.exists():
        _unpack_package(folder)
    return folder / "usr" / "bin" / "promtool"


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
                f"promtool is missing, and {' '.join(command)} failed: {done.stderr}\n"
                "Install Prometheus, or set PROMTOOL to the program"
            )
        with contextlib.suppress(OSError):  # another test run was faster
            (place / "unpacked").rename(folder)
