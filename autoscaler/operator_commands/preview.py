"""What a changed fleet.yaml would do, as text for a terminal."""

from typing import Any

import typer

from autoscaler.operator_commands.options import plain
from autoscaler.operator_commands.tables import print_table

Answer = dict[str, Any]


def print_preview(found: Answer) -> None:
    """Print what a changed fleet.yaml would do."""
    seen = found["preview"]
    for key in found["changed"]:
        typer.echo(f"changed: {plain(key)}")
    for key in found["needs_restart"]:
        typer.echo(f"not in this plan (a reload restarts the controller): {plain(key)}")
    for problem in found["refused"]:
        typer.echo(f"a reload would refuse this now: {plain(problem)}")
    if not found["changed"]:
        typer.echo("no changed key affects this plan")
    _print_launches(seen["launches"])
    _print_terminations(seen["terminations"], seen["terminated"])
    if seen["waiting"]:
        typer.echo("")
        print_table(
            ("jobs", "SKU", "would wait for", "reason"),
            [(one["count"], one["sku"], one["code"], one["message"]) for one in seen["waiting"]],
            long=("SKU", "reason"),
        )
    if count := seen["without_sku"]:
        jobs = "1 queued job" if count == 1 else f"{count} queued jobs"
        typer.echo(f"{jobs} would have no SKU")
    before, after = seen["dollars_before"], seen["dollars_after"]
    typer.echo("")
    typer.echo(
        f"cost at on-demand prices: ${before:,.2f} an hour now, ${after:,.2f} after this plan"
    )


def _print_launches(launches: list[Answer]) -> None:
    typer.echo("")
    if not launches:
        typer.echo("no machine would be launched")
        return
    rows = [
        (
            one["count"],
            one["sku"],
            f"{one['provider']} {one['capacity_type']}",
            f"${one['dollars_per_hour']:,.2f}",
        )
        for one in launches
    ]
    print_table(("launch", "SKU", "where", "an hour"), rows, long=("SKU",))


def _print_terminations(shown: list[Answer], total: int) -> None:
    if not shown:
        typer.echo("no machine would be terminated")
        return
    typer.echo("")
    print_table(
        ("terminate", "SKU", "reason", "why"),
        [(one["machine"], one["sku"], one["reason"], one["why"]) for one in shown],
        long=("SKU", "why"),
    )
    if total > len(shown):
        typer.echo(f"... and {total - len(shown)} more")
