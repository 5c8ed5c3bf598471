"""The commands that speak to a running controller: what cannot be told, and an operator's word on it.

Reads their command lines and prints what comes back; decides nothing else.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from autoscaler.operator_commands.client import ConfirmationClient

Config = Annotated[
    Path, typer.Option("--config", "-c", help="The controller's configuration, fleet.yaml.")
]
Url = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Where the controller is, if not at server.public_url."),
]


_NOT_LISTED = (
    "not listed since the controller's start, so what it has is not known yet; its log says why: "
    "provider_not_opened or list_incomplete"
)


def unclear(config: Config, url: Url = None) -> None:
    """List the machines of which the controller cannot tell whether anybody needs them.

    It counts them in its limits and ends none by itself before its SKU's lifetime. Also lists the
    machines that still exist after three requests to terminate them. Ends with 1
    if there are any, or a provider was not listed since the controller's start.
    """
    with _client(config, url) as client:
        found, total, unlisted = client.unclear()
    for one in found:
        typer.echo(_line(one))
    if total > len(found):
        typer.echo(f"... and {total - len(found)} more")
    for name in unlisted:
        typer.echo(f"provider {_plain(name)}: {_NOT_LISTED}", err=True)
    if not total and not unlisted:
        typer.echo("everything is clear", err=True)
    raise typer.Exit(1 if total or unlisted else 0)


def confirm(
    config: Config,
    machine: Annotated[
        str | None,
        typer.Argument(metavar="[MACHINE]", help="A machine that `unclear` lists: it is nobody's."),
    ] = None,
    installation: Annotated[
        str | None,
        typer.Option(metavar="ID", help="An installation whose store is lost: it is this one."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Although something speaks against it.")
    ] = False,
    url: Url = None,
) -> None:
    """Confirm that MACHINE is nobody's, and have it ended; or take an older installation over.

    A machine that may be at work is kept, and an installation is not taken over by a store with
    machines of its own: the answer says why, and what to do. --force is for who has looked.
    """
    if bool(machine) == bool(installation):
        raise typer.BadParameter("give either MACHINE or --installation ID")
    with _client(config, url) as client:
        if machine:
            ended = client.confirm_orphan(machine, force=force)
            typer.echo(f"machine {_plain(ended)} is being ended")
        elif installation:
            taken = client.take_over(installation, force=force)
            typer.echo(f"installation {_plain(taken)} is this fleet's own now")


def close_circuit(
    config: Config,
    sku: Annotated[str, typer.Argument(metavar="SKU", help="A SKU whose circuit breaker is open.")],
    url: Url = None,
) -> None:
    """Close the circuit breaker of SKU: what was wrong with its machines is mended.

    The controller launches as many machines as the jobs need again. If they fail too, it opens again.
    """
    with _client(config, url) as client:
        typer.echo(f"circuit breaker of {_plain(client.close_circuit(sku))} closed")


@contextmanager
def _client(config: Path, url: str | None) -> "Iterator[ConfirmationClient]":
    """What goes wrong is told on standard error: status 2 for fleet.yaml and options, else 1."""
    from autoscaler.config import ConfigurationError
    from autoscaler.operator_commands.client import (
        ConfirmationClient,
        ConfirmationFailedError,
        UnusableUrlError,
    )

    try:
        yield ConfirmationClient(config, url)
    except ConfigurationError as error:
        for problem in error.problems:
            typer.echo(str(problem), err=True)
        raise typer.Exit(2) from None
    except UnusableUrlError as error:
        raise typer.BadParameter(_plain(str(error)), param_hint="--url") from None
    except ConfirmationFailedError as error:
        typer.echo(_plain(str(error)), err=True)
        raise typer.Exit(1) from None


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
    """Without what would move a terminal's cursor: some of it comes from tags."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
