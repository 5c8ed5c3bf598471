"""The commands that ask a running controller: status, jobs, machines, history and explain."""

from types import ModuleType
from typing import Annotated

import typer

from autoscaler.operator_commands.arguments import job_number, labels_of, machine_state, usable_name
from autoscaler.operator_commands.options import (
    Config,
    Json,
    TokenFile,
    Url,
    connected,
    print_json,
)

OfSku = Annotated[str | None, typer.Option("--sku", metavar="SKU", help="Only of this SKU.")]
Limit = Annotated[int, typer.Option(min=1, max=250, help="Maximum number of rows.")]


def status(
    config: Config,
    every: Annotated[
        bool, typer.Option("--all", help="Also list SKUs that have neither jobs nor machines.")
    ] = False,
    as_json: Json = False,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """Show what waits, what is wrong, and the machines."""
    with connected(config, url, token_file) as client:
        seen = client.ask("/admin/status")
    if as_json:
        print_json(seen)
    else:
        _pages().print_status(seen, every=every)


def jobs(
    config: Config,
    running: Annotated[
        bool, typer.Option("--running", help="List jobs in progress instead of waiting jobs.")
    ] = False,
    unmatched: Annotated[
        bool, typer.Option("--unmatched", help="List queued jobs that no SKU serves instead.")
    ] = False,
    sku: OfSku = None,
    limit: Limit = 50,
    as_json: Json = False,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """List waiting jobs with the reason, oldest first."""
    if unmatched and (running or sku is not None):
        other = "--running" if running else "--sku"
        raise typer.BadParameter(f"cannot be used with {other}", param_hint="--unmatched")
    state = "unmatched" if unmatched else "in_progress" if running else "waiting"
    with connected(config, url, token_file) as client:
        found = client.ask("/admin/jobs", state=state, sku=sku, limit=limit)
    if as_json:
        print_json(found)
    else:
        _pages().print_jobs(found, state)


def machines(
    config: Config,
    sku: OfSku = None,
    state: Annotated[
        str | None,
        typer.Option(
            metavar="STATE", callback=machine_state, help="Only in this state, such as ready."
        ),
    ] = None,
    limit: Limit = 50,
    as_json: Json = False,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """List machines by SKU, in the order of their life."""
    with connected(config, url, token_file) as client:
        found = client.ask("/admin/machines", state=state, sku=sku, limit=limit)
    if as_json:
        print_json(found)
    else:
        _pages().print_machines(found)


def history(
    config: Config,
    name: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="A job's number or page, a machine's ID, its ID at its provider, a runner's name, a SKU, "
            "a provider, an installation, or all (the fleet).",
        ),
    ],
    as_json: Json = False,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """Show the history of a job, a machine or the fleet. The oldest row comes first."""
    record = job_number(name) or usable_name(name)
    with connected(config, url, token_file) as client:
        found = client.ask(f"/admin/history/{client.quoted(record)}")
    if as_json:
        print_json(found)
    else:
        _pages().print_history(found["history"])


def explain(
    config: Config,
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
    as_json: Json = False,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """Explain why a job waits, and what happens next.

    Shows the job's SKU, its place in line and what was tried. With labels instead of a job, show which SKU
    would run the job and where its machines launch.
    """
    job = job_number(what[0]) if len(what) == 1 else None
    labels = labels_of(what) if job is None else []
    with connected(config, url, token_file) as client:
        if job is not None:
            found = client.ask("/admin/explain", job=job)
        else:
            found = client.ask("/admin/explain", labels=",".join(labels), repository=repository)
    if as_json:
        print_json(found)
    else:
        from autoscaler.operator_commands.explanation import print_explanation

        print_explanation(found)


def _pages() -> ModuleType:
    """Return the module that prints answers. It takes 60 ms to import, which `--help` does not need."""
    from autoscaler.operator_commands import pages

    return pages
