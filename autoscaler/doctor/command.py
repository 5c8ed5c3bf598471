"""The command `autoscaler doctor`."""

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autoscaler.operator_commands.fleet_file import ConfigOption, fleet_file
from autoscaler.operator_commands.options import JobPage, job_page

if TYPE_CHECKING:
    from autoscaler.app.examining import Group
    from autoscaler.config import Configuration

WRONG, USAGE_ERROR = 1, 2


def doctor(
    job: Annotated[
        str | None,
        typer.Argument(
            metavar="[JOB URL]", help="Say why this job has no machine: the job's page at GitHub."
        ),
    ] = None,
    config: ConfigOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the checks as JSON.")] = False,
    within: Annotated[
        int,
        typer.Option(min=5, max=3600, metavar="SECONDS", help="How long one check may take."),
    ] = 25,
    export: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.zip",
            help="Also write the checks, fleet.yaml and the controller's log into a new zip, without secrets.",
        ),
    ] = None,
) -> None:
    """Check the fleet and what it needs. Print what is wrong and how to mend it.

    Asks GitHub, AWS, the clusters and this host, and changes nothing. Exits with 1 if something is wrong.
    """
    page = None if job is None else job_page(job)
    if page is not None and export is not None:
        raise typer.BadParameter("leave it out with a job", param_hint="--export")
    configuration = _loaded(config)
    if page is None:
        status = _examine(configuration, export, within, as_json=as_json)
    else:
        status = _explain(configuration, page, as_json=as_json)
    if status:
        raise typer.Exit(status)


def _loaded(config: Path | None) -> "Configuration":
    """Return a fleet.yaml whose text is valid. The checks judge the files that it names."""
    from autoscaler.app.preflight import load_for_service
    from autoscaler.config import ConfigurationError

    try:
        return load_for_service(fleet_file(config), files=False, try_store=False)
    except ConfigurationError as error:
        for problem in error.problems:
            typer.echo(str(problem), err=True)
        raise typer.Exit(USAGE_ERROR) from None


def _examine(
    configuration: "Configuration", export: Path | None, within: int, *, as_json: bool
) -> int:
    from autoscaler.doctor import printing

    if export is not None and export.exists():
        raise typer.BadParameter(f"{export} exists already", param_hint="--export")
    groups = asyncio.run(_groups(configuration, within, quiet=as_json))
    answer = printing.as_json(groups)
    if as_json:
        typer.echo(json.dumps(answer, indent=2))
    else:
        typer.echo(printing.summary(groups))
    if export is not None:
        _export(export, answer, configuration.path)
    return WRONG if printing.is_wrong(groups) else 0


async def _groups(configuration: "Configuration", within: int, *, quiet: bool) -> "list[Group]":
    """Carry out all examinations, and print each group as soon as it has ended."""
    from autoscaler.app.examining import examine
    from autoscaler.doctor.examining import examinations
    from autoscaler.doctor.printing import lines_of

    found = list(examinations(configuration, within))
    names = ", ".join(dict.fromkeys(one.group for one in found))
    typer.echo(f"Asking {names}: at most {within} s.", err=True)
    groups = []
    async for name, checks in examine(found, within):
        groups.append((name, checks))
        if not quiet:
            typer.echo("\n".join(lines_of(name, checks)))
    return groups


def _export(path: Path, answer: dict[str, object], fleet: Path) -> None:
    from autoscaler.doctor.export import export
    from autoscaler.setup.private_files import NotWrittenError

    try:
        export(path, answer, fleet.read_bytes())
    except NotWrittenError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(WRONG) from None
    typer.echo(f"wrote {path}: look through it before you send it", err=True)


def _explain(configuration: "Configuration", page: JobPage, *, as_json: bool) -> int:
    from autoscaler.config import ConfigurationError
    from autoscaler.console.links import GitHubPages
    from autoscaler.doctor import printing
    from autoscaler.doctor.job import ControllerNotAskedError, ask_controller, ask_github
    from autoscaler.operator_commands.explanation import print_explanation
    from autoscaler.operator_commands.options import plain

    base = GitHubPages.of_api(configuration.settings.github.api_url).base
    if page.github != base:
        raise typer.BadParameter(
            f"{page.github} is not the GitHub of this fleet, {base}", param_hint="JOB URL"
        )
    try:
        answer = ask_controller(configuration.path, page.job)
    except ControllerNotAskedError as error:
        typer.echo(plain(f"The controller says nothing of it: {error}"), err=True)
    else:
        if as_json:
            typer.echo(json.dumps(answer, indent=2))
        else:
            print_explanation(answer)
        return 0
    try:
        check = asyncio.run(ask_github(configuration, page))
    except ConfigurationError as error:
        typer.echo(str(error), err=True)
        return USAGE_ERROR
    groups = [("Job", (check,))]
    if as_json:
        typer.echo(json.dumps(printing.as_json(groups), indent=2))
    else:
        typer.echo(printing.line(check))
    return WRONG if printing.is_wrong(groups) else 0
