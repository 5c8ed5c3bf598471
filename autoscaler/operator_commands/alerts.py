"""The command `autoscaler alerts`, which prints alerting rules."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from autoscaler.model.wait_objectives import WaitObjective


def alerts(
    objective: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=SKUS:SECONDS:TARGET",
            help="How soon the jobs of some SKUs start, such as windows=windows.*:600:0.99. Repeatable.",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "-c",
            "--config",
            metavar="FILE",
            help="Take the objectives from metrics.wait_objectives of this fleet.yaml.",
        ),
    ] = None,
    dollars_per_hour: Annotated[
        float | None,
        typer.Option(metavar="DOLLARS", help="Alert if the fleet costs more than this."),
    ] = None,
    runbooks: Annotated[
        str, typer.Option(metavar="URL", help="Where your copy of docs/runbooks is.")
    ] = "docs/runbooks",
) -> None:
    """Print alerting rules for Prometheus.

    Each rule names its page in docs/runbooks. Without --objective and --config: of the jobs of each SKU, 99.9 %
    start within 300 s.
    """
    import yaml

    from autoscaler.model.wait_objectives import UnusableObjectiveError, parse_objective
    from autoscaler.observability.alert_rules import (
        AlertParameters,
        UnusableAlertError,
        alert_rules,
    )

    if objective and config is not None:
        raise typer.BadParameter("give --objective or --config, not both", param_hint="--objective")
    try:
        objectives = tuple(map(parse_objective, objective or ())) or _objectives_of(config)
    except UnusableObjectiveError as error:
        raise typer.BadParameter(str(error), param_hint="--objective") from None
    if len({one.name for one in objectives}) < len(objectives):
        raise typer.BadParameter("two objectives have one name", param_hint="--objective")
    try:
        parameters = AlertParameters(objectives, dollars_per_hour, runbooks)
    except UnusableAlertError as error:
        raise typer.BadParameter(str(error), param_hint="--dollars-per-hour") from None
    rules = alert_rules(parameters)
    typer.echo(yaml.safe_dump(rules, sort_keys=False, width=200), nl=False)


def _objectives_of(file: Path | None) -> "tuple[WaitObjective, ...]":
    """Return the objectives of a fleet.yaml; the default one without a file. Exits with 2 if it is invalid."""
    from autoscaler import config
    from autoscaler.model.wait_objectives import DEFAULT_OBJECTIVES
    from autoscaler.providers.registry import provider_kinds

    if file is None:
        return DEFAULT_OBJECTIVES
    try:
        settings = config.load(file, provider_kinds(), files=False).settings
    except config.ConfigurationError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from None
    return settings.metrics.wait_objectives or DEFAULT_OBJECTIVES
