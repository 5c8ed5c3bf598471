"""The commands that change a running fleet, and the list of unverified machines.

Reads the command lines and prints the controller's answers.
"""

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from autoscaler.operator_commands.arguments import usable_name
from autoscaler.operator_commands.options import (
    Config,
    Json,
    TokenFile,
    Url,
    connected,
    plain,
    print_json,
)

_NOT_LISTED = (
    "not listed since the controller's start, so its machines are not known yet; the log has the "
    "reason: provider_not_opened or list_incomplete"
)


def _target(metavar: str, what: str) -> Any:
    return typer.Argument(callback=usable_name, metavar=metavar, help=what)


Machine = Annotated[str, _target("MACHINE", "A machine's ID, or its ID at its provider.")]


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
    machine: Machine,
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
        answer = client.act(f"/admin/machines/{client.quoted(machine)}/terminate", force=force)
    if as_json:
        print_json(answer)
    else:
        typer.echo(f"machine {plain(answer.get('machine'))} is being terminated")


def adopt(
    config: Config,
    installation: Annotated[
        str,
        _target("ID", "The ID of the lost installation."),
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
        answer = client.act("/admin/adopt", installation=installation, force=force)
    if as_json:
        print_json(answer)
    else:
        adopted = plain(answer.get("installation"))
        typer.echo(f"installation {adopted} now belongs to this fleet")


def pause(
    config: Config,
    target: Annotated[
        str,
        _target("all|SKU|PROVIDER", "What to pause; sku/NAME or provider/NAME if it is ambiguous."),
    ],
    as_json: Json = False,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """Stop launches of a SKU, at a provider or in the fleet.

    They stop until `autoscaler resume`. Jobs wait with the code `paused`. Machines that exist run jobs as
    before.
    """
    _hold("pause", config, target, url, token_file, as_json=as_json)


def drain(
    config: Config,
    target: Annotated[
        str,
        _target(
            "MACHINE|SKU|PROVIDER",
            "What to drain; machine/ID, sku/NAME or provider/NAME if it is ambiguous.",
        ),
    ],
    as_json: Json = False,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """Give machines no further job, and terminate idle ones.

    Draining a SKU or a provider does this to each of its machines, and pauses it. No running job is stopped.
    """
    _hold("drain", config, target, url, token_file, as_json=as_json)


def quarantine(
    config: Config,
    machine: Machine,
    as_json: Json = False,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """Keep a machine without a job for inspection.

    The machine gets no job. The controller keeps it for the `lifetime` of its SKU, or until `autoscaler
    terminate` or `autoscaler resume`. A machine with a runner cannot be quarantined: it powers itself off.
    """
    _hold("quarantine", config, machine, url, token_file, as_json=as_json)


def resume(
    config: Config,
    target: Annotated[
        str, _target("all|MACHINE|SKU|PROVIDER", "What was paused, drained or quarantined.")
    ],
    as_json: Json = False,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """End a pause, drain or quarantine.

    A machine that is already being terminated does not come back.
    """
    _hold("resume", config, target, url, token_file, as_json=as_json)


def retry(
    config: Config,
    target: Annotated[
        str,
        _target(
            "all|SKU|PROVIDER", "What was corrected; sku/NAME or provider/NAME if it is ambiguous."
        ),
    ],
    as_json: Json = False,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """Try again at once what failed, after a correction.

    Ends the holds of a SKU, of a provider or of the fleet, and closes their circuit breakers. The controller
    then launches as many machines as jobs need. If the failures go on, the holds begin again.
    """
    _hold("retry", config, target, url, token_file, as_json=as_json)


def _hold(
    request: str, config: Config, target: str, url: Url, token_file: TokenFile, *, as_json: bool
) -> None:
    with connected(config, url, token_file) as client:
        answer = client.act(f"/admin/{request}", target=target)
    if as_json:
        print_json(answer)
        return
    typer.echo(plain(answer.get("done")))
    typer.echo(f"next: {plain(answer.get('next'))}")


def _print_unverified(answer: dict[str, Any]) -> None:
    found, total, not_listed = (
        answer[key] for key in ("unverified", "total", "providers_not_listed")
    )
    for one in found:
        typer.echo(_line(one))
    if total > len(found):
        typer.echo(f"... and {total - len(found)} more")
    for name in not_listed:
        typer.echo(f"provider {plain(name)}: {_NOT_LISTED}", err=True)
    if not total and not not_listed:
        typer.echo("no unverified machines", err=True)


def _line(one: dict[str, Any]) -> str:
    names = " ".join(
        plain(one[key]) for key in ("machine", "provider", "provider_id", "sku") if one.get(key)
    )
    since = one.get("since")
    when = ""
    if isinstance(since, int | float):
        when = f" since {datetime.fromtimestamp(since, UTC):%Y-%m-%d %H:%M:%S}Z"
    elif one.get("launched"):
        when = f" launched {plain(one['launched'])}"
    return f"{names}{when}: {plain(one.get('why'))}; {plain(one.get('what_to_do'))}"
