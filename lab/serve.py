"""The command `python -m lab.serve`: runs `autoscaler serve` on the laboratory's faster clock."""

from pathlib import Path
from typing import Annotated

import typer

from autoscaler.app.running import serve
from autoscaler.config import ConfigurationError
from autoscaler.controller.system import SystemClock
from autoscaler.operator_commands.usage import PlainCommand

command = typer.Typer(
    add_completion=False, context_settings={"help_option_names": ["-h", "--help"]}
)


@command.command(cls=PlainCommand)
def run(
    config: Annotated[Path, typer.Option("--config", "-c", help="The configuration, fleet.yaml.")],
    clock_scale: Annotated[
        float, typer.Option(min=0.001, max=100_000, help="How many times faster the clock runs.")
    ] = 1.0,
    clock_epoch: Annotated[
        float, typer.Option(min=0, help="The Unix time at which the faster clock starts.")
    ] = 0.0,
) -> None:
    """Run the controller on a faster clock until SIGTERM."""
    clock = SystemClock(clock_scale, clock_epoch)
    try:
        status = serve(config, log_format="json", log_level="info", clock=clock)
    except ConfigurationError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None
    raise typer.Exit(status)


if __name__ == "__main__":
    command()
