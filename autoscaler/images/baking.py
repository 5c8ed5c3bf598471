"""Builds a machine image with Packer, from a recipe of ami/ and the values of versions.yaml."""

import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import FrameType, MappingProxyType

from autoscaler.images.building import BuildError
from autoscaler.images.load import VersionsFile
from autoscaler.images.values import read_values

INSTANCE_TYPES: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "linux-cpu": {"x64": "m7i.large", "arm64": "m7g.large"},
        # With a GPU, because the build tests the driver.
        "linux-gpu": {"x64": "g4dn.xlarge", "arm64": "g5g.xlarge"},
    }
)
"""The type of the machine that builds a recipe's image, by recipe and architecture."""

TEMPLATE = "ami/linux"


def instance_type(recipe: str, arch: str, root: Path) -> str:
    """Return the type of the build machine. Raises BuildError for an unknown recipe or a wrong folder."""
    if recipe not in INSTANCE_TYPES:
        message = f"there is no recipe {recipe!r}; name one of {', '.join(INSTANCE_TYPES)}"
        raise BuildError(message)
    if not (root / TEMPLATE / "recipes" / recipe).is_file():
        message = f"{root} has no {TEMPLATE}; name the root of the repository with --root"
        raise BuildError(message)
    return INSTANCE_TYPES[recipe][arch]


def template_values(file: VersionsFile, arch: str) -> dict[str, str]:
    """Return the values of versions.yaml that the template needs. Raises ConfigurationError for a null."""
    return read_values(
        file,
        {
            "runner_version": "runner.version",
            "runner_url": f"runner.files.linux-{arch}.url",
            "runner_sha256": f"runner.files.linux-{arch}.sha256",
            "source_name": f"machine_images.ubuntu.names.{arch}",
            "source_owner": "machine_images.ubuntu.owner",
        },
    )


def run_packer(words: list[str]) -> int:
    """Run Packer in this terminal; return its exit status.

    SIGINT and SIGTERM reach Packer once, as SIGINT, and it then deletes the build machine. Packer has a session
    of its own, so that a terminal does not send it another SIGINT.
    Raises BuildError if Packer is not on the PATH.
    """
    process: subprocess.Popen[bytes] | None = None
    interrupted = False

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        nonlocal interrupted
        if process is not None and not interrupted:
            process.send_signal(signal.SIGINT)
        interrupted = True

    # Before Packer starts, so that no signal ends this program and leaves Packer running.
    before = {one: signal.signal(one, interrupt) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        process = _start_packer(words)
        if interrupted:
            process.send_signal(signal.SIGINT)
        status = process.wait()
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
    if interrupted:
        raise KeyboardInterrupt
    return status


def _start_packer(words: list[str]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(  # noqa: S603 - as the user chose
            ["packer", *words],  # noqa: S607 - on the user's PATH
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        message = (
            f"cannot run packer: {error.strerror}; install it from "
            "https://developer.hashicorp.com/packer/install, and put it on the PATH"
        )
        raise BuildError(message) from None
