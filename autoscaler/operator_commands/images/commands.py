"""The commands `autoscaler images check`, `publish`, `prune` and `shell`."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from autoscaler.images.commands import File, usage_errors
from autoscaler.images.recipes import ShellEngine
from autoscaler.operator_commands.fleet_file import ConfigOption, fleet_file

if TYPE_CHECKING:
    from autoscaler.images.entries import Versions
    from autoscaler.images.findings import Finding


@contextmanager
def ec2_calls(what: str = "EC2") -> Iterator[None]:
    """Print what a command waits for, and why EC2 refused a call; exit with 2 then."""
    from autoscaler.operator_commands.waiting import waiting_for
    from autoscaler.providers.ec2.images.account import ImageEc2Error

    try:
        with waiting_for(what):
            yield
    except ImageEc2Error as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from None


def _day(text: str) -> datetime:
    """Return the day that a text such as `2026-11-24` names. Raises BadParameter."""
    try:
        return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a day such as 2026-11-24") from None


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
    from autoscaler.operator_commands.waiting import waiting_for

    try:
        with waiting_for("GitHub"):
            return runner_end(scope, version, os.environ)
    except GitHubAnswerError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from None


def _missing_in(versions: "Versions", region: str) -> "tuple[Finding, ...]":
    from autoscaler.images.findings import missing_base_images
    from autoscaler.providers.ec2.images.account import AwsImages

    with ec2_calls():
        return tuple(missing_base_images(versions, AwsImages(region).exists))


def publish(
    image: Annotated[str, typer.Argument(metavar="AMI", help="The ID of the new image.")],
    region: Annotated[str, typer.Option(help="The image's region.")],
    subnet: Annotated[str, typer.Option(help="The subnet of the machine that tests the image.")],
    instance_type: Annotated[str, typer.Option(help="The machine's type.")],
) -> None:
    """Test a new machine image, and show it to fleets if it passes.

    Starts a machine from the image, which tests itself, and terminates it. Exits with 1 if the image fails, and
    with 2 if EC2 refuses a call.
    """
    import time

    from autoscaler.images.interruptions import interruptible_sleep
    from autoscaler.providers.ec2.images.account import AwsImages
    from autoscaler.providers.ec2.images.smoke_test import publish as run

    moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    began = time.monotonic()
    try:
        with ec2_calls(f"the test of {image} on a machine of its own, some minutes"):
            ec2 = AwsImages(region, subnet, instance_type)
            verdict = run(ec2, image, moment, time.monotonic, interruptible_sleep)
    except KeyboardInterrupt:
        typer.echo(f"{image}: the test was interrupted, and no machine of it is left", err=True)
        raise
    seconds = time.monotonic() - began
    if not verdict.passed:
        typer.echo(f"{image}: failed after {seconds:.0f} s: {verdict.text}", err=True)
        raise typer.Exit(1)
    typer.echo(f"{image}: published after {seconds:.0f} s: {verdict.text}")


def prune(
    region: Annotated[str, typer.Option(help="The images' region.")],
    image_set: Annotated[
        str, typer.Option(help="The image set: the value of the tag autoscaler:image-set.")
    ],
    keep: Annotated[
        int,
        typer.Option(min=1, metavar="COUNT", help="How many published images of each recipe stay."),
    ] = 3,
    min_age: Annotated[
        int, typer.Option(min=1, metavar="DAYS", help="The age before which nothing is deleted.")
    ] = 14,
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete them; without it, they are only listed.")
    ] = False,
) -> None:
    """List or delete old images of the recipes, with their snapshots.

    Never deletes an image of another set, or one that an instance or a launch template names. Exits with 2
    if EC2 refuses a call.
    """
    from datetime import timedelta

    from autoscaler.providers.ec2.images.pruning import AwsPruning, choose, delete_all

    with ec2_calls():
        ec2 = AwsPruning(region, image_set)
        chosen = choose(ec2.find(), datetime.now(UTC), keep, timedelta(days=min_age))
        if delete:
            delete_all(ec2, chosen, typer.echo)
        else:
            for one in chosen:
                typer.echo(f"would delete {one}")


def shell(
    sku: Annotated[str, typer.Argument(metavar="SKU", help="A SKU whose jobs run in pods.")],
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- COMMAND...]", help="What to run there; default: bash."),
    ] = None,
    config: ConfigOption = None,
    engine: Annotated[
        ShellEngine, typer.Option(help="The program that runs the container.")
    ] = ShellEngine.DOCKER,
    without_accelerators: Annotated[
        bool, typer.Option("--without-accelerators", help="Give the container no GPUs.")
    ] = False,
    show: Annotated[
        bool, typer.Option("--print", help="Print the command, and do not run it.")
    ] = False,
) -> None:
    """Open a shell in the environment of a SKU's jobs, on this machine.

    Exits as the shell does, or with 2 if the jobs of the SKU do not run in a container.
    """
    import shlex
    import sys

    from autoscaler.app.preflight import load_for_service
    from autoscaler.images.building import run
    from autoscaler.images.shells import amd_devices, container_of, shell_command

    with usage_errors():
        settings = load_for_service(fleet_file(config), files=False).settings
        container = container_of(settings, sku)
        for name in container.unknown:
            typer.echo(f"{name} is not set: only the cluster knows its value", err=True)
        words = shell_command(
            engine,
            settings.skus[sku],
            container,
            command or ["bash"],
            terminal=sys.stdin.isatty(),
            devices=None if without_accelerators else amd_devices(),
        )
        if show:
            typer.echo(shlex.join(words))
            return
        run(words)
