"""The commands: reads the command line, calls the code that does the work, and prints the result.

Each command imports what it needs, so that `--help` answers at once.
"""

import os
import re
import sys
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autoscaler.doctor.command import doctor
from autoscaler.images import commands as image_commands
from autoscaler.images.commands import images
from autoscaler.operator_commands import alerts, cost, queries
from autoscaler.operator_commands import commands as operator_commands
from autoscaler.operator_commands.fleet_file import DEFAULT, VARIABLE, ConfigOption, fleet_file
from autoscaler.operator_commands.host import commands as host_commands
from autoscaler.operator_commands.images import commands as published_images
from autoscaler.operator_commands.images.bake import bake
from autoscaler.operator_commands.store import store
from autoscaler.operator_commands.usage import PlainGroup
from autoscaler.setup.command import init

if TYPE_CHECKING:
    from autoscaler.config import Configuration, Problem
    from autoscaler.config.importing.runner_keys import Hardware, ImportOptions
    from autoscaler.model.catalogue import OperatingSystem

USAGE_ERROR = 2
"""Exit status of a command line or configuration that cannot be used."""

commands = typer.Typer(
    name="autoscaler",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    cls=PlainGroup,
)


class LogFormat(StrEnum):
    """The format of log lines."""

    JSON = "json"
    CONSOLE = "console"


class LogLevel(StrEnum):
    """The lowest level that is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version as installed

        typer.echo(installed("gpu-runner-autoscaler"))
        raise typer.Exit


def _replica_address(given: str | None) -> str | None:
    """Return the value of --replica-url. Raises: typer.BadParameter."""
    if given is None or re.fullmatch(r"https?://[^/?#@\s]+", given):
        return given
    raise typer.BadParameter("it must be like https://10.0.0.7:8443, without a path")


@commands.callback()
def options(
    _: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Launches a machine for each queued GitHub Actions job, and terminates it after the job."""


commands.command()(init)
commands.command()(doctor)


@commands.command()
def serve(
    config: ConfigOption = None,
    log_format: Annotated[LogFormat, typer.Option(help="The format of log lines.")] = (
        LogFormat.JSON
    ),
    log_level: Annotated[
        LogLevel, typer.Option(help="The lowest level that is logged.")
    ] = LogLevel.INFO,
    replica_url: Annotated[
        str | None,
        typer.Option(
            envvar="AUTOSCALER_REPLICA_URL",
            metavar="URL",
            callback=_replica_address,
            help="Where other replicas reach this one; default: this host's name, server.listen's port.",
        ),
    ] = None,
    intake_only: Annotated[
        bool,
        typer.Option("--intake-only", help="Only store webhook deliveries: never lead the fleet."),
    ] = False,
) -> None:
    """Run the controller until SIGTERM.

    On a store on PostgreSQL, several of them are replicas: one leads the fleet, and all serve.
    """
    from autoscaler.app.following import ReplicaOptions
    from autoscaler.app.running import serve as run
    from autoscaler.config import ConfigurationError

    try:
        status = run(
            fleet_file(config),
            log_format=log_format.value,
            log_level=log_level.value,
            replica=ReplicaOptions(replica_url, intake_only=intake_only),
        )
    except ConfigurationError as error:
        _report([*error.problems, *error.warnings])
        raise typer.Exit(USAGE_ERROR) from None
    raise typer.Exit(status)


@commands.command()
def check(
    config: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]",
            help=f"The configuration; default: ${VARIABLE}, then {DEFAULT} in this folder.",
        ),
    ] = None,
    skip_files: Annotated[
        bool,
        typer.Option("--skip-files", help="Do not read the files that fleet.yaml names."),
    ] = False,
    online: Annotated[
        bool,
        typer.Option(
            "--online", help="Also ask AWS and the clusters what doctor asks them. Creates nothing."
        ),
    ] = False,
) -> None:
    """Check a configuration, and print a summary of it.

    Prints every error and warning with its line and a fix. Exits with 2 if there is an error.
    """
    from autoscaler.app.preflight import load_for_service
    from autoscaler.app.summary import summarise
    from autoscaler.config import ConfigurationError

    if online and skip_files:
        raise typer.BadParameter("--online reads the files; leave out --skip-files")
    try:
        configuration = load_for_service(fleet_file(config), files=not skip_files)
    except ConfigurationError as error:
        _report([*error.problems, *error.warnings])
        raise typer.Exit(USAGE_ERROR) from None
    _report(configuration.warnings)
    lines = _ask_providers(configuration) if online else ()
    summarise(configuration, sys.stdout)
    for line in lines:
        typer.echo(line)


@commands.command(name="import")
def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="PyTorch's scale-config.yml.")],
    prefix: Annotated[
        str,
        typer.Option(
            help="Prefix for the name of every SKU, but not for its `labels`: lf., c. or lf.c.",
            metavar="PREFIX",
        ),
    ] = "",
    provider: Annotated[
        str, typer.Option(metavar="NAME", help="The name of the EC2 provider.")
    ] = "us-east-1",
    whole: Annotated[
        bool, typer.Option("--whole", help="Write a complete fleet.yaml, not only its SKUs.")
    ] = False,
    linux_ami: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|OWNER",
            help="The image for Linux types without an ami; default: the recipe's for the type's GPU.",
        ),
    ] = None,
    windows_ami: Annotated[
        str | None,
        typer.Option(metavar="NAME|OWNER", help="The image for Windows types without an ami."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="The file to create; default: standard output."
        ),
    ] = None,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="If a key is reported, write nothing and exit with 1."),
    ] = False,
) -> None:
    """Convert PyTorch's scale-config.yml into SKUs.

    Reports on stderr every key that it does not convert, with the reason.
    """
    from autoscaler.config.importing.runner_keys import ImportOptions
    from autoscaler.model.catalogue import OperatingSystem

    given = {OperatingSystem.LINUX: linux_ami, OperatingSystem.WINDOWS: windows_ami}
    images = {os: image for os, image in given.items() if image is not None}
    options = ImportOptions(prefix, provider, images)
    _import(file, options, output, whole=whole, strict=strict)


@commands.command()
def schema() -> None:
    """Print the JSON Schema of fleet.yaml, for editors."""
    from autoscaler.config import json_schema
    from autoscaler.providers.registry import provider_kinds

    typer.echo(json_schema(provider_kinds()))


for _command in (
    host_commands.install,
    host_commands.uninstall,
    alerts.alerts,
    queries.status,
    queries.jobs,
    queries.machines,
    queries.explain,
    queries.history,
    cost.cost,
    operator_commands.unverified,
    operator_commands.terminate,
    operator_commands.pause,
    operator_commands.drain,
    operator_commands.quarantine,
    operator_commands.resume,
    operator_commands.retry,
    operator_commands.plan,
    operator_commands.reload,
    operator_commands.adopt,
):
    commands.command()(_command)
images.command()(published_images.publish)
images.command()(published_images.prune)
images.command()(published_images.check)
images.command()(image_commands.values)
images.command()(image_commands.build)
images.command()(image_commands.driver)
images.command()(published_images.shell)
images.command()(bake)
commands.add_typer(images, name="images")
commands.add_typer(store, name="store")


@commands.command()
def version() -> None:
    """Print the version, as --version does."""
    _print_version(True)


def main() -> None:
    """Run `autoscaler` with the command line of this process.

    If a command cannot write to stdout, it prints one line to stderr and exits with 1.
    """
    if sys.__stdout__ is None:
        # The caller closed stdout: a command that writes to it fails, and `serve` runs.
        sys.stdout = Path(os.devnull).open(encoding="utf-8")  # noqa: SIM115
    try:
        commands()  # handles a broken pipe, and then exits with 1
    except OSError as error:
        if error.filename is not None:
            raise  # not stdout's: an error of stdout names no file
        # What is still buffered would fail again when Python flushes at its exit: status 120.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        reason = error.strerror or "it is closed"
        typer.echo(f"standard output: cannot be written: {reason}", err=True)
        sys.exit(1)


def _ask_providers(configuration: "Configuration") -> tuple[str, ...]:
    """Print the problems that the providers report. Return the other answers. Raises Exit for an error."""
    from autoscaler.app.preflight import check_online
    from autoscaler.operator_commands.waiting import waiting_for

    with waiting_for("AWS and the clusters"):
        answers = check_online(configuration)
    _report(answers.problems)
    if any(not problem.warning for problem in answers.problems):
        raise typer.Exit(USAGE_ERROR)
    return answers.lines


def _import(
    file: Path, options: "ImportOptions", output: Path | None, *, whole: bool, strict: bool
) -> None:
    """Write the SKUs of a scale-config.yml, and report what is not converted."""
    from shutil import get_terminal_size

    from autoscaler.config import ConfigurationError
    from autoscaler.config.importing.conversion import import_scale_config, report_lines

    try:
        text, imported = import_scale_config(file, options, _hardware_of, whole=whole)
        refused = strict and bool(imported.reported)
        if output is not None and not refused:
            _write_new(output, text)
    except ConfigurationError as error:
        _report([*error.problems, *error.warnings])
        raise typer.Exit(USAGE_ERROR) from None
    width = get_terminal_size().columns if sys.stderr.isatty() else None
    for line in report_lines(imported, str(file), width):
        typer.echo(line, err=True)
    if refused:
        raise typer.Exit(1)
    if output is None:
        typer.echo(text, nl=False)


def _hardware_of(instance_type: str, os: "OperatingSystem") -> "Hardware":
    """Return what is known of an instance type. Raises ValueError if it is unknown or has no price."""
    from autoscaler.config.importing.runner_keys import Hardware
    from autoscaler.images.baking import recipe_image
    from autoscaler.providers.ec2.instance_types import instance_type as find

    found = find(instance_type)
    found.dollars_per_hour(os)
    return Hardware(found.arch, recipe_image(found.gpu_maker, os, found.arch))


def _write_new(output: Path, text: str) -> None:
    """Create a file, completely or not at all. An existing file is not overwritten.

    Raises ConfigurationError if the file cannot be created, and Exit if the disk is full.
    """
    from autoscaler.config import ConfigurationError, Problem
    from autoscaler.config.problems import printable

    try:
        file = output.open("x", encoding="utf-8")
    except OSError as error:
        what = f"cannot be written: {error.strerror}"
        there = isinstance(error, FileExistsError)
        fix = "name a new file" if there else "name a file that can be written"
        raise ConfigurationError([Problem(str(output), 0, "", what, fix)]) from None
    try:
        with file:
            file.write(text)
    except OSError as error:
        output.unlink()
        typer.echo(f"{printable(str(output))}: cannot be written: {error.strerror}", err=True)
        raise typer.Exit(1) from None


def _report(problems: "Iterable[Problem]") -> None:
    for problem in sorted(problems):
        typer.echo(str(problem), err=True)


if __name__ == "__main__":
    main()
