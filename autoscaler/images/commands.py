"""The commands about images: `autoscaler images check`, `values`, `build` and `driver`."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autoscaler.images.publishing import prune, publish
from autoscaler.images.recipes import RECIPES, Engine

if TYPE_CHECKING:
    from autoscaler.images.entries import Versions
    from autoscaler.images.findings import Finding

images = typer.Typer(
    help="Build, check and prune images of machines and containers.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
images.command()(publish)
images.command()(prune)

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


def _day(text: str) -> datetime:
    """Return the day that a text such as `2026-11-24` names. Raises BadParameter."""
    try:
        return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a day such as 2026-11-24") from None


@images.command()
def check(
    file: File = None,
    day: Annotated[
        datetime | None,
        typer.Option(
            "--date",
            parser=_day,
            metavar="YEAR-MONTH-DAY",
            help="Check for this day; default: today.",
        ),
    ] = None,
    region: Annotated[
        str | None,
        typer.Option(help="Also ask EC2 in this region whether each base image still exists."),
    ] = None,
    scope: Annotated[
        str | None,
        typer.Option(
            metavar="org:OWNER|repo:OWNER/NAME",
            help="Ask GitHub there when it refuses the runner, with the token of GITHUB_TOKEN.",
        ),
    ] = None,
) -> None:
    """List what is missing or soon too old in versions.yaml.

    Lists each value that is null, the runner's version if GitHub soon gives it no more jobs, and each end of
    life in the next 90 days. With --region, also each base image that EC2 does not show. Exits with 1 if it
    lists anything, and with 2 if the file has an error, or EC2 or GitHub refuses a call.
    """
    from autoscaler.images.findings import UNASKED, find
    from autoscaler.images.load import load_versions

    with usage_errors():
        found = load_versions(file)
    today = (day or datetime.now(UTC)).date()
    end = UNASKED if scope is None else _runner_end(scope, found.versions.runner.version)
    findings = find(found.versions, today, end)
    if region is not None:
        findings += _missing_in(found.versions, region)
    for one in findings:
        problem = found.document.problem(one.path, one.what, one.fix, warning=one.warning)
        typer.echo(str(problem))
    if not findings:
        typer.echo("nothing is missing or too old", err=True)
    raise typer.Exit(1 if findings else 0)


def _runner_end(scope: str, version: str) -> date | None:
    import os

    from autoscaler.images.runner_end import GitHubAnswerError, runner_end

    try:
        return runner_end(scope, version, os.environ)
    except GitHubAnswerError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from None


def _missing_in(versions: "Versions", region: str) -> "tuple[Finding, ...]":
    from autoscaler.images.aws_base_images import AwsBaseImages
    from autoscaler.images.findings import missing_base_images
    from autoscaler.images.smoke_test import ImageEc2Error

    try:
        return tuple(missing_base_images(versions, AwsBaseImages(region).exists))
    except ImageEc2Error as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from None


@images.command()
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


@images.command()
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

    from autoscaler.images.building import prepare, run
    from autoscaler.images.load import load_versions
    from autoscaler.images.recipes import build_command

    with usage_errors():
        prepared = prepare(
            load_versions(file), name, root, platform, tuple(tag or ()), tuple(further or ())
        )
        command = build_command(engine, prepared, str(root))
        if show:
            typer.echo(shlex.join(command))
            return
        run(command)


DRIVER_BUDGET = 2430
"""Seconds for the installation of the driver: what the default deadlines leave it at boot."""


@images.command()
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

    from autoscaler.config.sku_settings import AcceleratorVendor
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
