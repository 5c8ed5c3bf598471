"""The commands that change a running fleet, or would, and the list of unverified machines.

Reads the command lines and prints the controller's answers.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autoscaler.operator_commands.options import (
    Answer,
    Reply,
    controller_command,
    plain,
    usable_name,
)

if TYPE_CHECKING:
    from autoscaler.operator_commands.client import OperatorClient

MAX_FILE_BYTES = 2**20
"""Maximum size of a fleet.yaml that the controller accepts."""

_NOT_LISTED = (
    "not listed since the controller's start, so its machines are not known yet; the log has the "
    "reason: provider_not_opened or list_incomplete"
)


def _target(metavar: str, what: str) -> Any:
    return typer.Argument(callback=usable_name, metavar=metavar, help=what)


Machine = Annotated[str, _target("MACHINE", "A machine's ID, or its ID at its provider.")]


@controller_command
def unverified(client: "OperatorClient") -> Reply:
    """List unverified machines, on which a job may be running.

    The controller cannot prove whether a job runs on these machines. It counts them in its limits and does
    not terminate them before their SKU's `lifetime` is over. Also lists machines that still exist after three
    requests to terminate them. Exits with 1 if it lists any machine, or if the controller has not listed
    a provider's machines since its start.
    """
    answer = client.unverified()
    incomplete = answer["total"] or answer["providers_not_listed"]
    return Reply(answer, _print_unverified, 1 if incomplete else 0)


@controller_command
def terminate(
    client: "OperatorClient",
    machine: Machine,
    force: Annotated[
        bool, typer.Option("--force", help="Terminate the machine even if it may be running a job.")
    ] = False,
) -> Reply:
    """Terminate a machine on which no job runs.

    The controller refuses if the machine has a runner, if an unverified machine may be running a job, or if
    the agent of a booting or ready machine has sent no request since the controller's start. The answer gives
    the reason. --force terminates the machine, and fails its job.
    """
    answer = client.act(f"/admin/machines/{client.quoted(machine)}/terminate", force=force)
    text = f"machine {plain(answer.get('machine'))} is being terminated"
    return Reply(answer, lambda _: typer.echo(text))


@controller_command
def adopt(
    client: "OperatorClient",
    installation: Annotated[str, _target("ID", "The ID of the lost installation.")],
    force: Annotated[
        bool,
        typer.Option("--force", help="Adopt the ID even if this store has machines of its own."),
    ] = False,
) -> Reply:
    """Adopt the machines of an installation whose store is lost.

    The installation ID becomes the ID of the controller's store. The controller refuses while its store has
    machines of its own, among other reasons. The answer gives the reason and what to do. Never adopt the
    ID of a controller that runs.
    """
    answer = client.act("/admin/adopt", installation=installation, force=force)
    text = f"installation {plain(answer.get('installation'))} now belongs to this fleet"
    return Reply(answer, lambda _: typer.echo(text))


@controller_command
def pause(
    client: "OperatorClient",
    target: Annotated[
        str,
        _target("all|SKU|PROVIDER", "What to pause; sku/NAME or provider/NAME if it is ambiguous."),
    ],
) -> Reply:
    """Stop launches of a SKU, at a provider or in the fleet.

    They stop until `autoscaler resume`. Jobs wait with the code `paused`. Machines that exist run jobs as
    before.
    """
    return _hold(client, "pause", target)


@controller_command
def drain(
    client: "OperatorClient",
    target: Annotated[
        str,
        _target(
            "MACHINE|SKU|PROVIDER",
            "What to drain; machine/ID, sku/NAME or provider/NAME if it is ambiguous.",
        ),
    ],
) -> Reply:
    """Give machines no further job, and terminate idle ones.

    Draining a SKU or a provider does this to each of its machines, and pauses it. No running job is stopped.
    """
    return _hold(client, "drain", target)


@controller_command
def quarantine(client: "OperatorClient", machine: Machine) -> Reply:
    """Keep a machine without a job for inspection.

    The machine gets no job. The controller keeps it for the `lifetime` of its SKU, or until `autoscaler
    terminate` or `autoscaler resume`. A machine with a runner cannot be quarantined: it powers itself off.
    """
    return _hold(client, "quarantine", machine)


@controller_command
def resume(
    client: "OperatorClient",
    target: Annotated[
        str, _target("all|MACHINE|SKU|PROVIDER", "What was paused, drained or quarantined.")
    ],
) -> Reply:
    """End a pause, drain or quarantine.

    A machine that is already being terminated does not come back.
    """
    return _hold(client, "resume", target)


@controller_command
def retry(
    client: "OperatorClient",
    target: Annotated[
        str,
        _target(
            "all|SKU|PROVIDER", "What was corrected; sku/NAME or provider/NAME if it is ambiguous."
        ),
    ],
) -> Reply:
    """Try again at once what failed, after a correction.

    Ends the holds of a SKU, of a provider or of the fleet, and closes their circuit breakers. The controller
    then launches as many machines as jobs need. If the failures go on, the holds begin again.
    """
    return _hold(client, "retry", target)


@controller_command
def plan(
    client: "OperatorClient",
    against: Annotated[
        Path, typer.Option("--against", metavar="FILE", help="A changed fleet.yaml.")
    ],
) -> Reply:
    """Show what a changed fleet.yaml would do now, and its cost.

    The running controller plans with the changed file: what it would launch, terminate and leave waiting. It
    changes nothing, and reads no file that the changed one names.
    """
    from autoscaler.operator_commands.pages import print_preview

    content = _content(against)
    with _problems_of(str(against)):
        found = client.plan_against(content)
    found["refused"] = [_renamed(line, str(against)) for line in found["refused"]]
    return Reply(found, print_preview)


@controller_command
def reload(client: "OperatorClient") -> Reply:
    """Apply a changed fleet.yaml.

    Does what SIGHUP does: the controller reads its fleet.yaml again, and refuses a file that `check` refuses.
    It uses changed SKUs and limits at once. For other keys, it starts again within its process.
    """
    with _problems_of(None):
        return Reply(client.act("/admin/reload"), _print_reload)


def _hold(client: "OperatorClient", request: str, target: str) -> Reply:
    return Reply(client.act(f"/admin/{request}", target=target), _print_hold)


def _print_hold(answer: Answer) -> None:
    typer.echo(plain(answer.get("done")))
    typer.echo(f"next: {plain(answer.get('next'))}")


def _print_reload(answer: Answer) -> None:
    for key in answer["changed"]:
        typer.echo(f"changed: {plain(key)}")
    typer.echo(plain(answer["done"]))


def _print_unverified(answer: Answer) -> None:
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


def _line(one: Answer) -> str:
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
