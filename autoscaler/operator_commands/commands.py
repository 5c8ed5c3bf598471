"""The commands for a running controller: unverified machines and lost installations.

Reads the command lines and prints the controller's answers.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autoscaler.operator_commands.arguments import usable_name
from autoscaler.operator_commands.json_output import Json, print_json

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

_NOT_LISTED = (
    "not listed since the controller's start, so its machines are not known yet; the log has the "
    "reason: provider_not_opened or list_incomplete"
)


def unverified(
    config: Config, as_json: Json = False, url: Url = None, token_file: TokenFile = None
) -> None:
    """List unverified machines, on which a job may be running.

    The controller cannot prove whether a job runs on these machines. It counts them in its limits and does
    not terminate them before their SKU's `lifetime` is over. Also lists machines that still exist after three
    requests to terminate them. Exits with 1 if it lists any machine, or if the controller has not listed
    a provider's machines since its start.
    """
    with connected(config, url, token_file) as client:
        answer = client.unverified()
    if as_json:
        print_json(answer)
    else:
        _print_unverified(answer)
    raise typer.Exit(1 if answer["total"] or answer["providers_not_listed"] else 0)


def terminate(
    config: Config,
    machine: Annotated[
        str,
        typer.Argument(
            metavar="MACHINE",
            callback=usable_name,
            help="A machine's ID, or its ID at its provider.",
        ),
    ],
    force: Annotated[
        bool, typer.Option("--force", help="Terminate the machine even if it may be running a job.")
    ] = False,
    as_json: Json = False,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """Terminate a machine on which no job runs.

    The controller refuses if the machine has a runner, if an unverified machine may be running a job, or if
    the agent of a booting or ready machine has sent no request since the controller's start. The answer gives
    the reason. --force terminates the machine, and fails its job.
    """
    with connected(config, url, token_file) as client:
        answer = client.terminate(machine, force=force)
    if as_json:
        print_json(answer)
    else:
        typer.echo(f"machine {_plain(str(answer.get('machine')))} is being terminated")


def adopt(
    config: Config,
    installation: Annotated[
        str,
        typer.Argument(metavar="ID", callback=usable_name, help="The ID of the lost installation."),
    ],
    force: Annotated[
        bool,
        typer.Option("--force", help="Adopt the ID even if this store has machines of its own."),
    ] = False,
    as_json: Json = False,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """Adopt the machines of an installation whose store is lost.

    The installation ID becomes the ID of the controller's store. The controller refuses while its store has
    machines of its own, among other reasons. The answer gives the reason and what to do. Never adopt the
    ID of a controller that runs.
    """
    with connected(config, url, token_file) as client:
        answer = client.adopt(installation, force=force)
    if as_json:
        print_json(answer)
    else:
        adopted = _plain(str(answer.get("installation")))
        typer.echo(f"installation {adopted} now belongs to this fleet")


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
            typer.echo(_plain(str(problem)), err=True)
        yield client
    except ConfigurationError as error:
        for problem in error.problems:
            typer.echo(str(problem), err=True)
        raise typer.Exit(2) from None
    except UnusableUrlError as error:
        raise typer.BadParameter(_plain(str(error)), param_hint="--url") from None
    except OperatorRequestFailedError as error:
        typer.echo(_plain(str(error)), err=True)
        raise typer.Exit(1) from None


def _print_unverified(answer: dict[str, Any]) -> None:
    found, total, not_listed = (
        answer[key] for key in ("unverified", "total", "providers_not_listed")
    )
    for one in found:
        typer.echo(_line(one))
    if total > len(found):
        typer.echo(f"... and {total - len(found)} more")
    for name in not_listed:
        typer.echo(f"provider {_plain(str(name))}: {_NOT_LISTED}", err=True)
    if not total and not not_listed:
        typer.echo("no unverified machines", err=True)


def _line(one: dict[str, Any]) -> str:
    names = " ".join(
        _plain(str(one[key]))
        for key in ("machine", "provider", "provider_id", "sku")
        if one.get(key)
    )
    since = one.get("since")
    when = ""
    if isinstance(since, int | float):
        when = f" since {datetime.fromtimestamp(since, UTC):%Y-%m-%d %H:%M:%S}Z"
    elif one.get("launched"):
        when = f" launched {_plain(str(one['launched']))}"
    return f"{names}{when}: {_plain(str(one.get('why')))}; {_plain(str(one.get('what_to_do')))}"


def _plain(text: str) -> str:
    """Replace unprintable characters, which tags may contain and a terminal would interpret."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
