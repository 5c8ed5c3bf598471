"""What a job waited for, as text for a terminal."""

from typing import Any

import typer

from autoscaler.model.wording import duration, moment
from autoscaler.operator_commands.tables import print_table

Answer = dict[str, Any]


def print_past(past: Answer) -> None:
    """Print what a job waited for, and the launches that failed meanwhile, if the history has any."""
    if past["waited_for"]:
        typer.echo("")
        typer.echo("What it waited for:")
        print_table(
            ("from", "for", "code", "why"),
            [
                (moment(one["begin"]), _lasted(one), one["code"], one["message"])
                for one in past["waited_for"]
            ],
            long=("why",),
        )
    if past["failed_launches"]:
        typer.echo("")
        typer.echo("Launches of its SKUs that failed while it waited:")
        print_table(
            ("last", "times", "SKU", "where", "why", "launch request"),
            [
                (
                    moment(one["last_at"]),
                    one["count"],
                    one["sku"],
                    one["where"],
                    f"{one['code']}: {one['message']}",
                    one["launch_request"],
                )
                for one in past["failed_launches"]
            ],
            long=("SKU", "where", "why"),
        )


def _lasted(one: Answer) -> str:
    return f"{duration(one['seconds'])}{' so far' if one['end'] is None else ''}"
