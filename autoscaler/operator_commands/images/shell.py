"""The command `autoscaler images shell`, which reads fleet.yaml."""

from pathlib import Path
from typing import Annotated

import typer

from autoscaler.images.commands import usage_errors
from autoscaler.images.recipes import ShellEngine


def shell(
    sku: Annotated[str, typer.Argument(metavar="SKU", help="A SKU whose jobs run in pods.")],
    config: Annotated[
        Path, typer.Option("--config", "-c", metavar="FILE", help="The configuration, fleet.yaml.")
    ],
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- COMMAND...]", help="What to run there; default: bash."),
    ] = None,
    engine: Annotated[
        ShellEngine, typer.Option(help="The program that runs the container.")
    ] = ShellEngine.DOCKER,
    without_accelerators: Annotated[
        bool, typer.Option("--without-accelerators", help="Give the container no GPUs.")
    ] = False,
    show: Annotated[
        bool, typer.Option("--print", help="Print the command, and do not run it.")
    ] = False,
) -> None:
    """Open a shell in the environment of a SKU's jobs, on this machine.

    Exits as the shell does, or with 2 if the jobs of the SKU do not run in a container.
    """
    import shlex
    import sys

    from autoscaler.app.preflight import load_for_service
    from autoscaler.images.building import run
    from autoscaler.images.shells import amd_devices, container_of, shell_command

    with usage_errors():
        settings = load_for_service(config, files=False).settings
        container = container_of(settings, sku)
        for name in container.unknown:
            typer.echo(f"{name} is not set: only the cluster knows its value", err=True)
        words = shell_command(
            engine,
            settings.skus[sku],
            container,
            command or ["bash"],
            terminal=sys.stdin.isatty(),
            devices=None if without_accelerators else amd_devices(),
        )
        if show:
            typer.echo(shlex.join(words))
            return
        run(words)
