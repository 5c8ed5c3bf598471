"""The commands about images that need no other service: `autoscaler images values`, `build`, `driver`."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from autoscaler.images.recipes import RECIPES, Engine

images = typer.Typer(
    help="Build, check and prune images of machines and containers.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

File = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="A versions.yaml; default: that of this installation."),
]


class ValuesFormat(StrEnum):
    """The format of values for a build."""

    ENV = "env"
    JSON = "json"


class Processor(StrEnum):
    """The processor of a machine, as in fleet.yaml. Importing the model's type would slow down `--help`."""

    X64 = "x64"
    ARM64 = "arm64"


class System(StrEnum):
    """The operating system of a machine, as in fleet.yaml."""

    LINUX = "linux"
    WINDOWS = "windows"


class Vendor(StrEnum):
    """The vendor of a GPU, as in fleet.yaml."""

    NVIDIA = "nvidia"
    AMD = "amd"


def values(
    wanted: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME=KEY...",
            help="What to print: RUNNER_SHA256=runner.files.linux-x64.sha256 prints that checksum as "
            "RUNNER_SHA256. A container image, such as container_images.ubuntu, prints its reference "
            "with its digest.",
        ),
    ],
    file: File = None,
    output: Annotated[
        ValuesFormat,
        typer.Option(
            "--format",
            help="env: NAME=value lines, for --build-arg-file. json: an object, for Packer's -var-file.",
        ),
    ] = ValuesFormat.ENV,
) -> None:
    """Print values of versions.yaml for a build.

    If one of them is null, prints nothing to stdout, names it, and exits with 2.
    """
    import json

    from autoscaler.images.load import load_versions
    from autoscaler.images.values import read_values

    keys = _names(wanted)
    with usage_errors():
        found = read_values(load_versions(file), keys)
    if output is ValuesFormat.JSON:
        typer.echo(json.dumps(found, indent=2))
        return
    for name, value in found.items():
        typer.echo(f"{name}={value}")


def build(
    name: Annotated[str, typer.Argument(metavar="NAME", help=f"One of {', '.join(RECIPES)}.")],
    further: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[-- OPTION...]", help="Further options of the engine, such as --push."
        ),
    ] = None,
    engine: Annotated[
        Engine, typer.Option(help="What builds the image: docker, podman or buildah.")
    ] = Engine.DOCKER,
    platform: Annotated[
        str | None,
        typer.Option(
            metavar="PLATFORM",
            help="The platform of the image, such as linux/arm64; default: that of this machine, if "
            "the image has it.",
        ),
    ] = None,
    tag: Annotated[
        list[str] | None,
        typer.Option(metavar="TAG", help="Names of the image; default: its own name and version."),
    ] = None,
    root: Annotated[
        Path, typer.Option(metavar="FOLDER", help="The root of the repository.", file_okay=False)
    ] = Path(),
    file: File = None,
    show: Annotated[
        bool, typer.Option("--print", help="Print the command, and do not run it.")
    ] = False,
) -> None:
    """Build a container image of this repository.

    The build gets the values of versions.yaml. If one of them is null, builds nothing, names it, and exits with
    2. Otherwise exits as the engine does.
    """
    import shlex

    from autoscaler.images.building import build_command, run
    from autoscaler.images.load import load_versions

    with usage_errors():
        command = build_command(
            engine, load_versions(file), name, root, platform, tag or (), further or ()
        )
        if show:
            typer.echo(shlex.join(command))
            return
        run(command)


DRIVER_BUDGET = 2430
"""Seconds for the installation of the driver: what the default deadlines leave it at boot."""


def driver(
    vendor: Annotated[Vendor, typer.Option(help="The vendor of the GPU.")] = Vendor.NVIDIA,
    arch: Annotated[Processor, typer.Option(help="The processor of the machine.")] = Processor.X64,
    system: Annotated[
        System, typer.Option("--os", help="The operating system of the machine.")
    ] = System.LINUX,
    file: File = None,
    budget: Annotated[
        int, typer.Option(min=60, metavar="SECONDS", help="How long the installation may take.")
    ] = DRIVER_BUDGET,
) -> None:
    """Print the installation plan of a GPU driver, for an image build.

    The build gives the plan to the agent: `agent.py install-driver FILE`. If versions.yaml lacks a value,
    prints nothing to stdout, names the value, and exits with 2.
    """
    import json

    from autoscaler.config.settings.sku import AcceleratorVendor
    from autoscaler.images.driver import driver_plan
    from autoscaler.images.load import load_versions
    from autoscaler.model.catalogue import Architecture, OperatingSystem

    with usage_errors():
        versions = load_versions(file)
        plan = driver_plan(
            versions, OperatingSystem(system), Architecture(arch), AcceleratorVendor(vendor)
        )
    typer.echo(json.dumps({**plan, "budget_s": budget}, indent=2))


def _names(wanted: list[str]) -> dict[str, str]:
    """Return the key of each name. Raises BadParameter."""
    keys: dict[str, str] = {}
    for pair in wanted:
        found = re.fullmatch(r"([A-Za-z_][A-Za-z0-9_]*)=([A-Za-z0-9_.-]+)", pair)
        if found is None:
            raise typer.BadParameter(f"{pair!r} is not NAME=KEY", param_hint="NAME=KEY")
        if found[1] in keys:
            raise typer.BadParameter(f"{found[1]} is there twice", param_hint="NAME=KEY")
        keys[found[1]] = found[2]
    return keys


@contextmanager
def usage_errors() -> Iterator[None]:
    """Print the errors of a file, a build or a shell to stderr, and exit with 2."""
    from autoscaler.config import ConfigurationError
    from autoscaler.images.building import BuildError
    from autoscaler.images.driver import NotBuiltError
    from autoscaler.images.shells import NoContainerError

    try:
        yield
    except (BuildError, NoContainerError, NotBuiltError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from None
    except ConfigurationError as error:
        for problem in error.problems:
            typer.echo(str(problem), err=True)
        raise typer.Exit(2) from None
