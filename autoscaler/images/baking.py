"""Builds a machine image with Packer, from a recipe of ami/ and the values of versions.yaml."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType, MappingProxyType

from autoscaler.config.settings.sku import AcceleratorVendor
from autoscaler.images.build_watch import BuildWatch
from autoscaler.images.building import BuildError
from autoscaler.images.interruptions import caught
from autoscaler.images.load import VersionsFile
from autoscaler.images.values import read_values
from autoscaler.model.catalogue import Architecture, OperatingSystem


@dataclass(frozen=True, slots=True)
class MachineRecipe:
    """How a machine image is built. `vendor` is the vendor of the GPUs whose driver is in the image.

    `instance_types` has the type of the build machine by architecture. It has a GPU of the vendor, because the
    build tests the driver.
    """

    vendor: AcceleratorVendor | None
    instance_types: Mapping[Architecture, str]
    platform: OperatingSystem = OperatingSystem.LINUX

    @property
    def template(self) -> str:
        """The folder of its template, in the repository."""
        return f"ami/{self.platform}"


FIRST_INIT = (1, 7)
INIT_SECONDS = 300.0
"""Seconds for the download of a plugin, of some 50 MB."""

_X64, _ARM64 = Architecture.X64, Architecture.ARM64

MACHINE_RECIPES: Mapping[str, MachineRecipe] = MappingProxyType(
    {
        "linux-cpu": MachineRecipe(None, {_X64: "m7i.large", _ARM64: "m7g.large"}),
        "linux-gpu": MachineRecipe(
            AcceleratorVendor.NVIDIA, {_X64: "g4dn.xlarge", _ARM64: "g5g.xlarge"}
        ),
        # AMD publishes the driver and ROCm for x64 only. EC2's only types with GPUs of AMD are those of g4ad.
        "linux-rocm": MachineRecipe(AcceleratorVendor.AMD, {_X64: "g4ad.xlarge"}),
        # EC2 has no Windows for arm64.
        "windows": MachineRecipe(None, {_X64: "m7i.xlarge"}, OperatingSystem.WINDOWS),
        "windows-gpu": MachineRecipe(
            AcceleratorVendor.NVIDIA, {_X64: "g4dn.xlarge"}, OperatingSystem.WINDOWS
        ),
    }
)
"""The recipes, by the name of their file in the folder `recipes` of their template."""

_LINUX_VALUES = {
    "runner_version": "runner.version",
    "runner_url": "runner.files.linux-{arch}.url",
    "runner_sha256": "runner.files.linux-{arch}.sha256",
    "source_name": "machine_images.ubuntu.names.{arch}",
    "source_owner": "machine_images.ubuntu.owner",
}
_WINDOWS_VALUES = {
    "runner_version": "runner.version",
    "runner_url": "runner.files.windows-x64.url",
    "runner_sha256": "runner.files.windows-x64.sha256",
    "python_version": "programs.python-windows.version",
    "python_url": "programs.python-windows.files.windows-x64.url",
    "python_sha256": "programs.python-windows.files.windows-x64.sha256",
    "git_version": "programs.git-windows.version",
    "git_url": "programs.git-windows.files.windows-x64.url",
    "git_sha256": "programs.git-windows.files.windows-x64.sha256",
    "vc_redist_url": "programs.vc-redist.files.windows-x64.url",
    "vc_redist_sha256": "programs.vc-redist.files.windows-x64.sha256",
    "source_name": "machine_images.windows-server.names.x64",
    "source_owner": "machine_images.windows-server.owner",
}
TEMPLATE_VALUES = MappingProxyType(
    {OperatingSystem.LINUX: _LINUX_VALUES, OperatingSystem.WINDOWS: _WINDOWS_VALUES}
)
"""The keys in versions.yaml of a template's variables, by the variable's name."""


def recipe_image(gpu_maker: str, os: OperatingSystem, arch: Architecture) -> str:
    """Return the newest image of the recipe that fits a machine, as `name|owner`.

    `gpu_maker` is that of the machine's GPU in the table of instance types. No recipe has a driver for Gaudi,
    nor one for GPUs of AMD on Windows: these types get the image without a driver. docs/images.md names the
    GPUs of NVIDIA that need another image.
    """
    windows = os is OperatingSystem.WINDOWS
    if gpu_maker == AcceleratorVendor.NVIDIA:
        recipe = f"{os}-gpu"
    elif gpu_maker == AcceleratorVendor.AMD and not windows:
        recipe = "linux-rocm"
    else:
        recipe = "windows" if windows else "linux-cpu"
    return f"autoscaler/{recipe}-{arch}-*|self"


def find_recipe(name: str, architecture: Architecture, root: Path) -> MachineRecipe:
    """Return a recipe. Raises BuildError for an unknown recipe or architecture, and a wrong folder."""
    found = MACHINE_RECIPES.get(name)
    if found is None:
        message = f"there is no recipe {name!r}; name one of {', '.join(MACHINE_RECIPES)}"
        raise BuildError(message)
    if architecture not in found.instance_types:
        only = ", ".join(found.instance_types)
        what = "it" if found.vendor is None else "its driver"
        raise BuildError(
            f"{name} cannot be built for {architecture}: {what} exists for {only} only"
        )
    if not (root / found.template / "recipes" / name).is_file():
        message = f"{root} has no {found.template}; name the root of the repository with --root"
        raise BuildError(message)
    return found


def template_values(file: VersionsFile, platform: OperatingSystem, arch: str) -> dict[str, str]:
    """Return the values of versions.yaml that the template needs. Raises ConfigurationError for a null."""
    keys = TEMPLATE_VALUES[platform]
    return read_values(file, {name: key.format(arch=arch) for name, key in keys.items()})


def init_plugins(root: Path) -> None:
    """Install the plugins of the templates, unless this user has them. Raises BuildError.

    Packer has had `init` since 1.7. Before, its builders were part of it. `init` asks the network only for a
    plugin that is missing (Packer, "init command").
    """
    said = _packer(["version"]).stdout
    found = re.search(rb"v(\d+)\.(\d+)", said)
    if found is None or (int(found[1]), int(found[2])) < FIRST_INIT:
        return
    done = _packer(["init", str(root / "ami/plugins")])
    if done.returncode != 0:
        words = done.stdout.decode(errors="replace").strip()
        raise BuildError(f"packer init ended with status {done.returncode}: {words}")


def _packer(words: list[str]) -> subprocess.CompletedProcess[bytes]:
    """Run a short command of Packer, and return what it printed. Raises BuildError."""
    try:
        return subprocess.run(  # noqa: S603 - as the user chose
            ["packer", *words],  # noqa: S607 - on the user's PATH
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            timeout=INIT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        message = f"packer {words[0]} did not end within {INIT_SECONDS} s"
        raise BuildError(message) from None
    except OSError as error:
        raise _not_runnable(error) from None


def _not_runnable(error: OSError) -> BuildError:
    return BuildError(
        f"cannot run packer: {error.strerror}; install it from "
        "https://developer.hashicorp.com/packer/install, and put it on the PATH"
    )


def run_packer(words: list[str], watch: BuildWatch) -> int:
    """Run Packer, print its output and return its exit status.

    SIGINT, SIGTERM and SIGHUP reach Packer once, as SIGINT, and it then deletes the build machine. Packer has a
    session of its own, so that a terminal does not send it another SIGINT. Its process group gets the signal,
    as a terminal would send it: Packer builds in a child process, and the parent ignores SIGINT (Packer's
    main.go, `panicwrap.Wrap`).
    Raises BuildError if Packer is not on the PATH, and OSError if stdout could not be written. Packer has then
    deleted its machine, too: at a broken pipe of its own it would die at once. `watch` interrupts and kills
    Packer if it waits for ever; it then has a reason.
    """
    process: subprocess.Popen[bytes] | None = None

    def interrupt(_number: int = 0, _frame: FrameType | None = None) -> None:
        if process is not None and not watch.interrupted:
            _send(process, signal.SIGINT)
        watch.interrupted = True

    # Before Packer starts, so that no signal ends this program and leaves Packer running.
    with caught(interrupt):
        process = _start_packer(words)
        if watch.interrupted:
            _send(process, signal.SIGINT)
        with _watched(watch, process):
            failure = _print_output(process, interrupt)
            status = process.wait()
    if failure is not None:
        raise failure
    if watch.interrupted and not watch.reason:
        raise KeyboardInterrupt
    return status


def _print_output(
    process: subprocess.Popen[bytes], interrupt: Callable[[], None]
) -> OSError | None:
    """Print what Packer prints until it ends. If stdout fails, interrupt Packer and return the error."""
    failure = None
    assert process.stdout is not None
    with process.stdout as lines:
        for line in lines:
            if failure is None:
                try:
                    sys.stdout.buffer.write(line)
                    sys.stdout.buffer.flush()
                except OSError as error:
                    failure = error
                    interrupt()
    return failure


@contextlib.contextmanager
def _watched(watch: BuildWatch, process: subprocess.Popen[bytes]) -> Iterator[None]:
    finished = threading.Event()
    interrupt, kill = (partial(_send, process, one) for one in (signal.SIGINT, signal.SIGKILL))
    threading.Thread(target=watch.run, args=(finished, interrupt, kill), daemon=True).start()
    try:
        yield
    finally:
        finished.set()


def _send(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _start_packer(words: list[str]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(  # noqa: S603 - as the user chose
            ["packer", *words],  # noqa: S607 - on the user's PATH
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise _not_runnable(error) from None
