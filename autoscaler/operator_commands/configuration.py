"""The commands about a changed fleet.yaml: plan --against and reload."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from autoscaler.operator_commands.options import (
    Config,
    Json,
    TokenFile,
    Url,
    connected,
    plain,
    print_json,
)

MAX_FILE_BYTES = 2**20
"""Maximum size of a fleet.yaml that the controller accepts."""


def plan(
    config: Config,
    against: Annotated[
        Path, typer.Option("--against", metavar="FILE", help="A changed fleet.yaml.")
    ],
    as_json: Json = False,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """Show what a changed fleet.yaml would do now, and its cost.

    The running controller plans with the changed file: what it would launch, terminate and leave waiting. It
    changes nothing, and reads no file that the changed one names.
    """
    from autoscaler.operator_commands.preview import print_preview

    content = _content(against)
    with connected(config, url, token_file) as client, _problems_of(str(against)):
        found = client.plan_against(content)
        found["refused"] = [_renamed(line, str(against)) for line in found["refused"]]
    if as_json:
        print_json(found)
    else:
        print_preview(found)


def reload(
    config: Config, as_json: Json = False, url: Url = None, token_file: TokenFile = None
) -> None:
    """Apply a changed fleet.yaml.

    Does what SIGHUP does: the controller reads its fleet.yaml again, and refuses a file that `check` refuses.
    It uses changed SKUs and limits at once. For other keys, it starts again within its process.
    """
    with connected(config, url, token_file) as client, _problems_of(None):
        found = client.act("/admin/reload")
    if as_json:
        print_json(found)
        return
    for key in found["changed"]:
        typer.echo(f"changed: {plain(key)}")
    typer.echo(plain(found["done"]))


def _content(path: Path) -> bytes:
    """Return the bytes of a fleet.yaml. Raises BadParameter if it cannot be read or is too large."""
    from autoscaler.config.files.regular_files import open_regular

    try:
        with open_regular(path) as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        problem = f"{path}: cannot be read: {error.strerror}"
        raise typer.BadParameter(problem, param_hint="--against") from None
    if len(content) > MAX_FILE_BYTES:
        problem = f"{path}: is larger than 1 MiB ({MAX_FILE_BYTES} bytes), the most that the controller accepts"
        raise typer.BadParameter(problem, param_hint="--against")
    return content


@contextmanager
def _problems_of(name: str | None) -> Iterator[None]:
    """Print the problems of a refused file, under the name that it has on this host. Exits with 2."""
    from autoscaler.operator_commands.client import ConfigurationRefusedError

    try:
        yield
    except ConfigurationRefusedError as error:
        for line in error.problems:
            typer.echo(plain(line if name is None else _renamed(line, name)), err=True)
        raise typer.Exit(2) from None


def _renamed(line: str, name: str) -> str:
    """Return a problem of the sent file, under the name that it has on this host."""
    from autoscaler.config.load import SENT

    return name + line.removeprefix(SENT) if line.startswith(SENT) else line
