"""The commands `autoscaler install` and `autoscaler uninstall`."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autoscaler.operator_commands.fleet_file import ConfigOption, fleet_file

if TYPE_CHECKING:
    from autoscaler.config.settings.fleet import Settings
    from autoscaler.operator_commands.host.plan import Plan
    from autoscaler.operator_commands.host.system import Host

TEMPLATE = Path(__file__).with_name("autoscaler.service")


def install(
    config: ConfigOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what it would make. Changes nothing.")
    ] = False,
) -> None:
    """Run the controller under systemd on this host.

    Copies fleet.yaml and the files beside it that it names to /etc/autoscaler, makes a user, a hardened unit
    and /var/lib/autoscaler, starts the controller, and waits until it is ready. Run it again after a change.
    """
    from autoscaler.operator_commands.host.system import ThisHost

    install_on(ThisHost(), config, dry_run=dry_run)


def uninstall(
    now: Annotated[
        bool, typer.Option("--now", help="Do not drain: machines may be left at the providers.")
    ] = False,
    purge: Annotated[
        bool,
        typer.Option(
            "--purge", help="Also remove /etc/autoscaler, /var/lib/autoscaler and the user."
        ),
    ] = False,
) -> None:
    """Drain the fleet, and remove the controller's unit.

    Exits with 1 while machines are left; run it again when they have ended. Says what it leaves, and why.
    """
    from autoscaler.operator_commands.host.system import ThisHost

    uninstall_from(ThisHost(), now=now, purge=purge)


def install_on(host: "Host", config: Path | None, *, dry_run: bool) -> None:
    """Install the controller on a host. Exits with 1 if that is refused, with 2 for an error of fleet.yaml."""
    import time

    from autoscaler.operator_commands.host.installing import apply, ask_ready, wait_until_ready
    from autoscaler.operator_commands.host.plan import UNIT

    with _refusals():
        if not dry_run:
            host.refuse_unusable()
        settings, plan = _plan(host, fleet_file(config))
        if dry_run:
            _print(plan)
            return
        apply(plan, host, typer.echo)
        listen, tls = settings.server.listen, settings.server.tls is not None
        wait_until_ready(host, lambda: ask_ready(listen, tls=tls), time.monotonic, time.sleep)
    typer.echo(f"the controller is ready. Its log: journalctl -fu {UNIT}")
    typer.echo("next: queue a job, and run `autoscaler status -c /etc/autoscaler/fleet.yaml`")


def uninstall_from(host: "Host", *, now: bool, purge: bool) -> None:
    """Remove the controller from a host. Exits with 1 while machines are left."""
    from autoscaler.operator_commands.host.installing import remove
    from autoscaler.operator_commands.host.plan import CONFIGURATION

    with _refusals():
        host.refuse_unusable()
        if not now:
            _drain(CONFIGURATION / "fleet.yaml")
        remove(host, typer.echo, purge=purge)


def _plan(host: "Host", config: Path) -> "tuple[Settings, Plan]":
    """Return what fleet.yaml says, and what to make. Prints its warnings.

    Raises RefusedError, and ConfigurationError for what `check` refuses. The store is another one than that of
    a check: only the installation makes its folder.
    """
    from importlib.metadata import version

    from autoscaler import config as configuration
    from autoscaler.app.preflight import preflight
    from autoscaler.operator_commands.host.installing import read_fleet
    from autoscaler.operator_commands.host.plan import plan
    from autoscaler.providers.registry import provider_kinds

    kinds = provider_kinds()
    loaded = configuration.load(config, kinds, files=False)
    fleet = read_fleet(loaded)
    problems = preflight(loaded, kinds)
    if any(not problem.warning for problem in problems):
        raise configuration.ConfigurationError(problems)
    for problem in sorted({*problems, *loaded.warnings}):
        typer.echo(str(problem), err=True)
    template = TEMPLATE.read_text(encoding="utf-8")
    return loaded.settings, plan(fleet, host.program(), version("gpu-runner-autoscaler"), template)


def _drain(config: Path) -> None:
    """Drain every provider of a running controller. Raises RefusedError while machines are left."""
    from autoscaler import config as configuration
    from autoscaler.operator_commands.client import OperatorClient, OperatorRequestFailedError
    from autoscaler.operator_commands.endpoint import configured_endpoint
    from autoscaler.operator_commands.host.installing import drain
    from autoscaler.operator_commands.host.plan import RefusedError
    from autoscaler.providers.registry import provider_kinds

    otherwise = (
        "to remove the unit without that, add --now: machines then power off after their jobs, "
        "and idle ones after 15 minutes"
    )
    try:
        settings = configuration.load(config, provider_kinds(), files=False).settings
        left = drain(OperatorClient(configured_endpoint(config)), tuple(settings.providers))
    except (OperatorRequestFailedError, configuration.ConfigurationError) as error:
        raise RefusedError(f"cannot drain the fleet: {error}; {otherwise}") from None
    if left:
        raise RefusedError(
            f"the fleet is drained, and machines are left: `autoscaler machines -c {config}` lists them. "
            f"Each ends after its job: run this again then; {otherwise}"
        )


@contextmanager
def _refusals() -> Iterator[None]:
    """Print why something is refused. Exits with 2 for an error of fleet.yaml, and with 1 for others."""
    from autoscaler.config import ConfigurationError
    from autoscaler.operator_commands.host.plan import RefusedError

    try:
        yield
    except ConfigurationError as error:
        for problem in sorted([*error.problems, *error.warnings]):
            typer.echo(str(problem), err=True)
        raise typer.Exit(2) from None
    except RefusedError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None
    except OSError as error:
        typer.echo(f"{error.filename}: {error.strerror}", err=True)
        raise typer.Exit(1) from None


def _print(plan: "Plan") -> None:
    """Print the plan, without the contents of secrets."""
    from autoscaler.operator_commands.host.plan import UNIT_FILE

    for folder in plan.folders:
        typer.echo(f"folder {folder.path} {folder.mode:o} {folder.owner}")
    for file in plan.files:
        typer.echo(f"file {file.path} {file.mode:o} {file.owner}")
        if file.path == UNIT_FILE:
            typer.echo(file.content.decode())
