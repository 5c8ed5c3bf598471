"""The options of all commands for a running controller, its client, and how its answers are printed."""

import inspect
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

if TYPE_CHECKING:
    from autoscaler.operator_commands.client import OperatorClient

Answer = dict[str, Any]


class Reply(NamedTuple):
    """The controller's answer, the function that prints it as text, and the exit status."""

    answer: Answer
    print_text: Callable[[Answer], None]
    status: int = 0


def controller_command(ask: Callable[..., Reply]) -> Callable[..., None]:
    """Return a command for a running controller, with the options that all such commands have.

    `ask` gets a client, then the command's own arguments. The command has its name and its documentation.
    """

    def command(
        config: Annotated[
            Path, typer.Option("--config", "-c", help="The controller's configuration, fleet.yaml.")
        ],
        as_json: Annotated[
            bool, typer.Option("--json", help="Print the controller's answer as JSON.")
        ] = False,
        url: Annotated[
            str | None,
            typer.Option(
                metavar="URL", help="The controller's URL, if it is not server.public_url."
            ),
        ] = None,
        token_file: Annotated[
            Path | None,
            typer.Option(
                envvar="AUTOSCALER_TOKEN_FILE",
                metavar="FILE",
                help="A file with your token, if it is not in server.admin_token_file.",
            ),
        ] = None,
        **own: Any,
    ) -> None:
        with _connected(config, url, token_file) as client:
            answer, print_text, status = ask(client, **own)
        if as_json:
            typer.echo(json.dumps(answer, indent=2))
        else:
            print_text(answer)
        if status:
            raise typer.Exit(status)

    first, *shared, _ = inspect.signature(command).parameters.values()
    _, *its_own = inspect.signature(ask).parameters.values()
    parameters = [first, *its_own, *shared]
    # Typer reads both.
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    command.__name__, command.__doc__ = ask.__name__, ask.__doc__
    return command


@contextmanager
def _connected(
    config: Path, url: str | None, token_file: Path | None
) -> "Iterator[OperatorClient]":
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


def plain(text: object) -> str:
    """Replace unprintable characters, which names and tags may contain and a terminal would interpret."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(text))
