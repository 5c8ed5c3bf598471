"""The root file system of the test machines: a Debian like a cloud image, made once for all clones."""

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from lab.kubernetes.programs import cache

RELEASE = "bookworm"
PACKAGES = (
    "ca-certificates",
    "cloud-init",
    "curl",
    "dbus",
    "e2fsprogs",
    "libpam-systemd",
    "openssh-server",
    "procps",
    "python3",
    "sudo",
    "systemd",
    "systemd-sysv",
)
"""What a cloud image has before a recipe runs. The recipe's own packages are stand-ins."""


def base_root(packages: Sequence[str] = PACKAGES) -> Path:
    """Return the root file system, and make it first if it is missing (two minutes). Nothing may change it.

    `packages` are those of Debian beside its required ones. Raises RuntimeError if it cannot be made.
    """
    if os.geteuid() != 0:
        raise RuntimeError(
            "only root can mount the disks of built machines; run: sudo make test-systems"
        )
    digest = hashlib.sha256(" ".join((RELEASE, *packages)).encode()).hexdigest()[:16]
    folder = cache().parent / "machine-roots"
    root = folder / digest
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        # Another clone may be making it.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not root.exists():
            _make(root.with_suffix(".new"), packages)
            root.with_suffix(".new").rename(root)
    return root


def _make(folder: Path, packages: Sequence[str]) -> None:
    if shutil.which("mmdebstrap") is None:
        raise RuntimeError("mmdebstrap is missing: install the Debian package mmdebstrap")
    shutil.rmtree(folder, ignore_errors=True)
    include = f"--include={','.join(packages)}"
    # Mounts of its own: if it is killed, none is left below `folder`, which the next call deletes.
    mounts = ["unshare", "--mount"]
    command = [*mounts, "mmdebstrap", "--quiet", "--variant=apt", include, RELEASE, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"mmdebstrap ended with {done.returncode}: {done.stderr[-2000:]}")
