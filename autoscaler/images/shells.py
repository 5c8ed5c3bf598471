"""The command that opens a shell in the environment of a SKU's jobs, on a developer's machine.

Sources: docker's and podman's reference of `run`; NVIDIA's documentation of the container toolkit (`--gpus`,
and CDI for podman); ROCm documentation, "Running ROCm Docker containers" (`/dev/kfd`, `/dev/dri/renderD*`).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from autoscaler.config.settings.fleet import JobContainer, Settings
from autoscaler.config.settings.sku import AcceleratorVendor, Image, SkuSettings
from autoscaler.images.recipes import ShellEngine
from autoscaler.model.catalogue import Architecture

PLATFORMS = {Architecture.X64: "linux/amd64", Architecture.ARM64: "linux/arm64"}

ENVIRONMENT = """\
import os, sys
def read(name):
    try:
        with open(name, encoding='utf-8-sig', errors='replace') as file:
            return file.read()
    except OSError:
        return ''
path = read('.path').strip()
if path.isprintable() and path:
    os.environ['PATH'] = path
for line in read('.env').split('\\n'):
    name, sign, value = line.partition('=')
    if name and value:
        os.environ[name] = value
    elif name and sign:
        os.environ.pop(name, None)
try:
    os.execvp(sys.argv[1], sys.argv[1:])
except OSError as error:
    print(sys.argv[1] + ':', error.strerror, file=sys.stderr)
    sys.exit(126 + isinstance(error, FileNotFoundError))
"""
"""Starts a command as the agent and the listener start a job. Python, which every image for pods has.

The agent sets `PATH` from `.path`, as runsvc.sh does. After that, the listener sets the variables in `.env`,
with any name; an empty value removes the variable (actions/runner, Program.cs, LoadAndSetEnv).
"""


class NoContainerError(Exception):
    """The jobs of a SKU do not run in a container. The text says where they run, and what to do."""


@dataclass(frozen=True, slots=True)
class AmdDevices:
    """AMD's GPUs of this machine: paths of their render nodes in order, and the groups that may open them."""

    render_nodes: tuple[str, ...] = ()
    groups: tuple[int, ...] = ()


def container_of(settings: Settings, name: str) -> JobContainer:
    """Return the container of a SKU's jobs: that of its first launch option that has one.

    Raises NoContainerError.
    """
    sku = settings.skus.get(name)
    if sku is None:
        raise NoContainerError(
            f"fleet.yaml has no SKU {name!r}; name one of {', '.join(settings.skus)}"
        )
    sections = [(settings.providers[one.provider].section, one) for one in sku.launch_options]
    found = (section.container(option) for section, option in sections)
    first = next((one for one in found if one is not None), None)
    if first is not None:
        return first
    places = "; ".join(
        f"{section.describe(option)} at {option.provider}" for section, option in sections
    )
    image = "" if sku.image is None else f" from the image {_image_words(sku.image)}"
    raise NoContainerError(
        f"{name} runs on machines{image}: {places}. It has no container to open a shell in; "
        "launch an instance from that image to get the environment of its jobs"
    )


def _image_words(image: Image) -> str:
    return image.stock or f"{image.name} ({image.owner})"


def shell_command(
    engine: ShellEngine,
    sku: SkuSettings,
    container: JobContainer,
    words: Sequence[str],
    *,
    terminal: bool,
    devices: AmdDevices | None,
) -> list[str]:
    """Return the command that starts `words` in the environment of a SKU's jobs.

    `devices` are AMD's GPUs of this machine. Without them (None), the container gets no accelerator.
    """
    limits = [] if container.cpus is None else ["--cpus", f"{container.cpus:g}"]
    if container.memory is not None:
        limits += ["--memory", f"{container.memory}b"]
    if container.shared_memory is not None:
        limits += ["--shm-size", f"{container.shared_memory}b"]
    given = [word for one in container.environment.items() for word in ("--env", "=".join(one))]
    return [
        engine.value,
        "run",
        "--rm",
        "--interactive",
        *(["--tty"] if terminal else []),
        "--platform",
        PLATFORMS[sku.arch],
        # As in the pod: no root, and no way to become root.
        "--user",
        str(container.user),
        "--cap-drop=ALL",
        "--security-opt=no-new-privileges",
        *limits,
        *([] if devices is None else accelerator_options(engine, sku, devices)),
        *given,
        "--entrypoint",
        "python3",
        container.image,
        *("-I", "-S", "-c"),
        ENVIRONMENT,
        *words,
    ]


def accelerator_options(engine: ShellEngine, sku: SkuSettings, devices: AmdDevices) -> list[str]:
    """Return the options that give a container as many accelerators as a SKU's machine has."""
    if sku.accelerator is None:
        return []
    count = sku.accelerator.count
    if sku.accelerator.vendor is AcceleratorVendor.AMD:
        paths = ["/dev/kfd", *devices.render_nodes[:count]]
        groups = (
            ["keep-groups"]
            if engine is ShellEngine.PODMAN
            else [str(one) for one in devices.groups]
        )
        return [f"--device={one}" for one in paths] + [f"--group-add={one}" for one in groups]
    if engine is ShellEngine.PODMAN:
        return [f"--device=nvidia.com/gpu={number}" for number in range(count)]
    return [f"--gpus={count}"]


def amd_devices(folder: Path = Path("/dev")) -> AmdDevices:
    """Return the render nodes, in order, and the groups of their files and of `kfd`.

    The groups are numbers of this machine: the image may know another one by the name `render`.
    """
    nodes = sorted((folder / "dri").glob("renderD*"), key=_number)
    files = [one for one in (folder / "kfd", *nodes) if one.exists()]
    groups = sorted({one.stat().st_gid for one in files})
    return AmdDevices(tuple(map(str, nodes)), tuple(groups))


def _number(path: Path) -> int:
    return int(re.sub(r"\D", "", path.name) or 0)
