"""The command `python -m lab` (`make demo`): replays one push against the laboratory."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autoscaler.operator_commands.usage import PlainCommand

if TYPE_CHECKING:
    from autoscaler.model.catalogue import OperatingSystem

command = typer.Typer(
    add_completion=False, context_settings={"help_option_names": ["-h", "--help"]}
)


@command.command(cls=PlainCommand)
def demo(
    scale: Annotated[
        float | None,
        typer.Option(
            min=1,
            max=100_000,
            help="How many times faster than real time lab time runs; default: 80, less on a busy host.",
        ),
    ] = None,
    lose_job: Annotated[
        bool,
        typer.Option(
            "--lose-job", help="Make the simulated GitHub lose one job. The demo must report it."
        ),
    ] = False,
    leak_machine: Annotated[
        bool,
        typer.Option(
            "--leak-machine",
            help="Make the simulated EC2 keep one machine. The demo must report it.",
        ),
    ] = False,
    kubernetes: Annotated[
        bool,
        typer.Option(
            "--kubernetes",
            help="Replay also the jobs that can run on pods, on a real Kubernetes API server.",
        ),
    ] = False,
    replicas: Annotated[
        bool,
        typer.Option(
            "--replicas",
            help="Run three replicas on a real PostgreSQL server, and kill and suspend the one that leads.",
        ),
    ] = False,
    stay: Annotated[
        bool,
        typer.Option(
            "--stay",
            help="After the push, keep everything up until Ctrl-C, to look at the console.",
        ),
    ] = False,
    push: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Replay the push in this file instead of the built-in one."
        ),
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Keep the controller's log, configuration and store in this folder.",
        ),
    ] = None,
) -> None:
    """Replay one push to a large repository against a simulated GitHub and EC2 on this host."""
    if lose_job and leak_machine:
        raise typer.BadParameter("use either --lose-job or --leak-machine, not both")
    # The imports take seconds on a busy host.
    typer.echo("Loading the laboratory ...")
    sys.stdout.flush()
    from lab.demo import DemoOptions
    from lab.demo import main as run
    from lab.read_store import read_store
    from lab.replicas.takeovers import Faults
    from lab.verdict import Fault

    fault = Fault.LOST_JOB if lose_job else Fault.LEAKED_MACHINE if leak_machine else None
    options = DemoOptions(
        scale=scale,
        fault=fault,
        push=push,
        keep=keep,
        kubernetes=kubernetes,
        stay=stay,
        replicas=Faults() if replicas else None,
    )
    if kubernetes:
        _build_programs()
    raise typer.Exit(run(price_of=price_of, read_stored=read_store, options=options))


def _build_programs() -> None:
    """Build the programs of the cluster that are missing. Exits with status 1 if that fails."""
    from lab.kubernetes.build import main as build

    try:
        status = build()
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    if status:
        raise typer.Exit(status)


def price_of(instance_type: str, os: "OperatingSystem") -> float:
    """Return an instance type's price in dollars per hour. Raises ValueError if it has none."""
    from autoscaler.providers.ec2.instance_types import instance_type as find

    return find(instance_type).dollars_per_hour(os)


if __name__ == "__main__":
    command()
