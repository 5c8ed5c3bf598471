"""The history of faults as text for a terminal."""

import typer

from autoscaler.model.wording import duration, moment
from autoscaler.operator_commands.options import Answer
from autoscaler.operator_commands.tables import print_table


def print_fault_history(found: Answer) -> None:
    """Print the faults of the last 30 days, those that began last first."""
    if not found["faults"]:
        typer.echo("no fault is recorded", err=True)
        return
    print_table(
        ("began", "ended", "lasted", "code", "about", "jobs", "message"),
        [
            (
                moment(one["began"]),
                moment(one["ended"]) or "lasts",
                duration((one["ended"] or found["at"]) - one["began"]),
                one["code"],
                one["about"],
                one["jobs"] or "",
                one["message"],
            )
            for one in found["faults"]
        ],
        long=("message",),
    )
