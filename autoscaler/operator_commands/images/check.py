"""The command `autoscaler images check`."""

from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from autoscaler.images.commands import File, usage_errors

if TYPE_CHECKING:
    from autoscaler.images.entries import Versions
    from autoscaler.images.findings import Finding


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

    try:
        return runner_end(scope, version, os.environ)
    except GitHubAnswerError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from None


def _missing_in(versions: "Versions", region: str) -> "tuple[Finding, ...]":
    from autoscaler.images.findings import missing_base_images
    from autoscaler.providers.ec2.images.account import AwsImages, ImageEc2Error

    try:
        return tuple(missing_base_images(versions, AwsImages(region).exists))
    except ImageEc2Error as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from None
