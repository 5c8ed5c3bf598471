"""`autoscaler cost`: what the fleet's machines cost in the last days, as a table, CSV or JSON."""

import csv
import re
import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from autoscaler.operator_commands.options import Answer, Reply, controller_command

if TYPE_CHECKING:
    from autoscaler.operator_commands.client import OperatorClient

_MOST_DAYS = 93
_DAYS = re.compile(r"([1-9][0-9]?)d")
_DOLLARS = ("dollars", "job", "boot", "ready", "end", "failed_launch")
_COUNTS = ("jobs", "failed_launches")


class By(StrEnum):
    """What a row is about: the keys of `views/spending.py`, which `--help` does not import."""

    PROVIDER = "provider"
    SKU = "sku"
    REPOSITORY = "repository"


def _days(text: str) -> str:
    """Return the number of days in `30d`. Raises BadParameter."""
    found = _DAYS.fullmatch(text)
    if found is None or int(found[1]) > _MOST_DAYS:
        raise typer.BadParameter(f"give days, such as 30d, from 1d to {_MOST_DAYS}d")
    return found[1]


@controller_command
def cost(
    client: "OperatorClient",
    last: Annotated[
        str,
        typer.Option(
            metavar="DAYS",
            callback=_days,
            help=f"How many days in UTC, today included, up to {_MOST_DAYS}d.",
        ),
    ] = "30d",
    by: Annotated[
        list[By] | None,
        typer.Option(
            metavar="KEY",
            help="One row for each provider, sku or repository; default: sku. Repeat it for several.",
        ),
    ] = None,
    as_csv: Annotated[
        bool, typer.Option("--csv", help="Print CSV, in dollars with all digits.")
    ] = False,
) -> Reply:
    """Show what the machines cost, and what the money bought.

    Time counts on the day on which it ends, at the price of that moment: a job at its end, idle time when the
    machine's job starts. Only a job's own time belongs to its repository.
    """
    keys = [key.value for key in By if key in (by or [By.SKU])]
    found = client.ask("/admin/cost", days=last, by=",".join(keys))
    return Reply(found, lambda answer: (_print_csv if as_csv else _print_table)(answer, keys))


def _print_csv(found: Answer, keys: list[str]) -> None:
    """Print one line for each row, and no total: a sheet adds up itself."""
    columns = (*keys, *_DOLLARS, "hours", *_COUNTS)
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([row[column] for column in columns] for row in found["rows"])
    _print_omitted(found)


def _print_table(found: Answer, keys: list[str]) -> None:
    from autoscaler.operator_commands.tables import print_table

    if not found["rows"]:
        typer.echo(f"no machine's time has ended since {found['since']}", err=True)
        return
    print_table(
        (
            *keys,
            "dollars",
            "jobs $",
            "boots $",
            "idle $",
            "ends $",
            "failed $",
            "hours",
            "jobs",
            "failed",
        ),
        [
            *(_cells(row, [row[key] or "no job" for key in keys]) for row in found["rows"]),
            _cells(found["total"], ["total", *("" for _ in keys[1:])]),
        ],
        long=(),
    )
    typer.echo(f"since {found['since']} in UTC", err=True)
    _print_omitted(found)


def _cells(row: Answer, names: list[str]) -> list[str]:
    return [
        *names,
        *(f"{row[column]:,.2f}" for column in _DOLLARS),
        f"{row['hours']:,.1f}",
        *(f"{row[column]:,}" for column in _COUNTS),
    ]


def _print_omitted(found: Answer) -> None:
    if found["omitted"]:
        typer.echo(f"{found['omitted']:,} cheaper rows are omitted", err=True)
