"""The commands that ask a running controller: status, jobs, machines, history and explain."""

from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Annotated

import typer

from autoscaler.operator_commands.options import (
    Reply,
    controller_command,
    job_number,
    labels_of,
    machine_state,
    usable_name,
)

if TYPE_CHECKING:
    from autoscaler.operator_commands.client import OperatorClient

OfSku = Annotated[str | None, typer.Option("--sku", metavar="SKU", help="Only of this SKU.")]
Limit = Annotated[int, typer.Option(min=1, max=250, metavar="ROWS", help="Maximum number of rows.")]
Page = Annotated[int, typer.Option(min=1, metavar="NUMBER", help="Which page of so many rows.")]


@controller_command
def status(
    client: "OperatorClient",
    every: Annotated[
        bool, typer.Option("--all", help="Also list SKUs that have neither jobs nor machines.")
    ] = False,
) -> Reply:
    """Show what waits, what is wrong, and the machines."""
    return Reply(client.ask("/admin/status"), partial(_pages().print_status, every=every))


@controller_command
def jobs(
    client: "OperatorClient",
    running: Annotated[
        bool, typer.Option("--running", help="List jobs in progress instead of waiting jobs.")
    ] = False,
    unmatched: Annotated[
        bool, typer.Option("--unmatched", help="List queued jobs that no SKU serves instead.")
    ] = False,
    sku: OfSku = None,
    repository: Annotated[
        str | None, typer.Option(metavar="OWNER/NAME", help="Only of this repository.")
    ] = None,
    reason: Annotated[
        str | None, typer.Option(metavar="CODE", help="Only with this reason code, such as quota.")
    ] = None,
    older_than: Annotated[
        int,
        typer.Option(
            min=0,
            max=100_000,
            metavar="MINUTES",
            help="Only jobs that have waited, or run, for longer.",
        ),
    ] = 0,
    limit: Limit = 50,
    page: Page = 1,
) -> Reply:
    """List waiting jobs with the reason, oldest first."""
    if unmatched and (running or sku is not None):
        other = "--running" if running else "--sku"
        raise typer.BadParameter(f"cannot be used with {other}", param_hint="--unmatched")
    state = "unmatched" if unmatched else "in_progress" if running else "waiting"
    found = client.ask(
        "/admin/jobs",
        state=state,
        sku=sku,
        repository=repository,
        reason=reason,
        older_than=60 * older_than,
        limit=limit,
        page=page,
    )
    return Reply(found, partial(_pages().print_jobs, state=state))


@controller_command
def machines(
    client: "OperatorClient",
    sku: OfSku = None,
    state: Annotated[
        str | None,
        typer.Option(
            metavar="STATE", callback=machine_state, help="Only in this state, such as ready."
        ),
    ] = None,
    provider: Annotated[
        str | None, typer.Option(metavar="PROVIDER", help="Only of this provider.")
    ] = None,
    limit: Limit = 50,
    page: Page = 1,
) -> Reply:
    """List machines by SKU, in the order of their life."""
    found = client.ask(
        "/admin/machines", state=state, sku=sku, provider=provider, limit=limit, page=page
    )
    ended = state in ("terminated", "failed", "lost")
    return Reply(found, partial(_pages().print_machines, ended=ended))


@controller_command
def history(
    client: "OperatorClient",
    name: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="A job's number or page, a machine's ID, its ID at its provider, a runner's name, a SKU, "
            "a provider, an installation, all (the fleet), or faults (those of the last 30 days).",
        ),
    ],
) -> Reply:
    """Show the history of a job, a machine or the fleet. The oldest row comes first."""
    if name == "faults":
        from autoscaler.operator_commands.fault_history import print_fault_history

        return Reply(client.ask("/admin/faults"), print_fault_history)
    record = job_number(name) or usable_name(name)
    found = client.ask(f"/admin/history/{client.quoted(record)}")
    return Reply(found, lambda answer: _pages().print_history(answer["history"]))


@controller_command
def explain(
    client: "OperatorClient",
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="JOB|LABEL...", help="A job's number or page at GitHub, or the labels of a job."
        ),
    ],
    repository: Annotated[
        str | None,
        typer.Option(
            metavar="OWNER/NAME",
            help="The repository of a job with these labels. Without it, scopes and access do not count.",
        ),
    ] = None,
) -> Reply:
    """Explain why a job waits, and what happens next.

    Shows the job's SKU, its place in line and what was tried. With labels instead of a job, show which SKU
    would run the job and where its machines launch.
    """
    from autoscaler.operator_commands.explanation import print_explanation

    job = job_number(what[0]) if len(what) == 1 else None
    if job is not None:
        return Reply(client.ask("/admin/explain", job=job), print_explanation)
    labels = ",".join(labels_of(what))
    found = client.ask("/admin/explain", labels=labels, repository=repository)
    return Reply(found, print_explanation)


def _pages() -> ModuleType:
    """Return the module that prints answers. It takes 60 ms to import, which `--help` does not need."""
    from autoscaler.operator_commands import pages

    return pages
