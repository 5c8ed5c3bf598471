"""The commands about holds of a running fleet: pause, drain, quarantine, resume and retry."""

from typing import Annotated

import typer

from autoscaler.operator_commands.arguments import usable_name
from autoscaler.operator_commands.commands import Config, TokenFile, Url, connected
from autoscaler.operator_commands.json_output import Json, print_json

Group = Annotated[
    str,
    typer.Argument(
        callback=usable_name,
        metavar="all|SKU|PROVIDER",
        help="What to pause; sku/NAME or provider/NAME if it is ambiguous.",
    ),
]
Drained = Annotated[
    str,
    typer.Argument(
        callback=usable_name,
        metavar="MACHINE|SKU|PROVIDER",
        help="What to drain; machine/ID, sku/NAME or provider/NAME if it is ambiguous.",
    ),
]
OneMachine = Annotated[
    str,
    typer.Argument(
        callback=usable_name,
        metavar="MACHINE",
        help="A machine's ID, or its ID at its provider.",
    ),
]
Held = Annotated[
    str,
    typer.Argument(
        callback=usable_name,
        metavar="all|MACHINE|SKU|PROVIDER",
        help="What was paused, drained or quarantined.",
    ),
]

Retried = Annotated[
    str,
    typer.Argument(
        callback=usable_name,
        metavar="all|SKU|PROVIDER",
        help="What was corrected; sku/NAME or provider/NAME if it is ambiguous.",
    ),
]


def pause(
    config: Config,
    target: Group,
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
    target: Drained,
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
    machine: OneMachine,
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
    target: Held,
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
    target: Retried,
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
    from autoscaler.operator_commands.tables import plain

    with connected(config, url, token_file) as client:
        answer = client.hold(request, target)
    if as_json:
        print_json(answer)
        return
    typer.echo(plain(answer.get("done")))
    typer.echo(f"next: {plain(answer.get('next'))}")
