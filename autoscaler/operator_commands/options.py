"""The options of all commands for a running controller, its client, and its answers as JSON."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from autoscaler.operator_commands.client import OperatorClient

Config = Annotated[
    Path, typer.Option("--config", "-c", help="The controller's configuration, fleet.yaml.")
]
Url = Annotated[
    str | None,
    typer.Option(metavar="URL", help="The controller's URL, if it is not server.public_url."),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        envvar="AUTOSCALER_TOKEN_FILE",
        metavar="FILE",
        help="A file with your token, if it is not in server.admin_token_file.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the controller's answer as JSON.")]


@contextmanager
def connected(config: Path, url: str | None, token_file: Path | None) -> "Iterator[OperatorClient]":
    """Return a client of the controller.

    Prints errors to stderr. Exits with 2 for errors of fleet.yaml or options, with 1 for others.
    """
    from autoscaler.config import ConfigurationError, exposed_token_file
    from autoscaler.operator_commands.client import (
        OperatorClient,
        OperatorRequestFailedError,
        UnusableUrlError,
    )

    try:
        client = OperatorClient(config, url, token_file)
        if token_file is not None and (problem := exposed_token_file(token_file)) is not None:
            typer.echo(plain(str(problem)), err=True)
        yield client
    except ConfigurationError as error:
        for problem in error.problems:
            typer.echo(str(problem), err=True)
        raise typer.Exit(2) from None
    except UnusableUrlError as error:
        raise typer.BadParameter(plain(str(error)), param_hint="--url") from None
    except OperatorRequestFailedError as error:
        typer.echo(plain(str(error)), err=True)
        raise typer.Exit(1) from None


def print_json(answer: dict[str, Any]) -> None:
    """Print an answer of the controller."""
    typer.echo(json.dumps(answer, indent=2))


def plain(text: object) -> str:
    """Replace unprintable characters, which names and tags may contain and a terminal would interpret."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(text))
