"""The command `autoscaler alerts`, which prints alerting rules."""

from typing import Annotated

import typer


def alerts(
    objective: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=SKUS:SECONDS:TARGET",
            help="How soon the jobs of some SKUs start, such as windows=windows.*:600:0.99. Repeatable.",
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

    Each rule names its page in docs/runbooks. Without --objective: of the jobs of each SKU, 99.9 % start within
    300 s.
    """
    import yaml

    from autoscaler.observability.alert_rules import AlertParameters, alert_rules
    from autoscaler.observability.wait_objectives import (
        UnusableAlertError,
        WaitObjective,
        parse_objective,
    )

    try:
        objectives = tuple(map(parse_objective, objective or ())) or (WaitObjective(),)
    except UnusableAlertError as error:
        raise typer.BadParameter(str(error), param_hint="--objective") from None
    if len({one.name for one in objectives}) < len(objectives):
        raise typer.BadParameter("two objectives have one name", param_hint="--objective")
    try:
        parameters = AlertParameters(objectives, dollars_per_hour, runbooks)
    except UnusableAlertError as error:
        raise typer.BadParameter(str(error), param_hint="--dollars-per-hour") from None
    rules = alert_rules(parameters)
    typer.echo(yaml.safe_dump(rules, sort_keys=False, width=200), nl=False)
