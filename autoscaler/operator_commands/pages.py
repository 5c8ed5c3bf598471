"""The controller's answers as text for a terminal. Ages count by the controller's clock, not by this host's."""

from typing import Any

import typer

from autoscaler.model.wording import counted, duration, moment
from autoscaler.operator_commands.options import plain
from autoscaler.operator_commands.tables import print_table

Answer = dict[str, Any]


def print_status(seen: Answer, *, every: bool) -> None:
    """Print the state of the fleet: a summary, what is wrong, and a table of its SKUs."""
    typer.echo(f"{plain(seen['fleet'])} at {moment(seen['at'])}")
    typer.echo(f"{_waiting(seen['waiting'], seen['blocked'])}; {seen['running']} running")
    if seen["unmatched"]:
        typer.echo(_unmatched(seen["unmatched"]))
    cost = f"${seen['dollars_per_hour']:,.2f} an hour"
    count, most = seen["machines"], seen["machines_limit"]
    machines = f"{_of(count, most)} machine{'' if (most or count) == 1 else 's'}"
    limit = seen["dollars_limit"]
    typer.echo(f"{machines}, {cost}{f' (limit ${limit:,.2f})' if limit is not None else ''}")
    typer.echo("")
    _print_faults(seen["faults"])
    busy = [
        one for one in seen["skus"] if every or one["waiting"] or one["running"] or one["machines"]
    ]
    if busy:
        typer.echo("")
        print_table(
            ("SKU", "waiting", "oldest", "why", "running", "booting", "ready", "machines"),
            [_sku_row(one) for one in busy],
            long=("SKU", "why"),
        )
    if hidden := len(seen["skus"]) - len(busy):
        which = f"{counted(hidden, 'SKU')} {'has' if hidden == 1 else 'have'}"
        typer.echo(f"{which} neither jobs nor machines: --all lists them")


def _waiting(count: int, blocked: int) -> str:
    if blocked:
        return f"{count} waiting, {blocked} without a machine on its way"
    return f"{count} waiting, all with a machine on its way" if count else "0 waiting"


def _unmatched(counts: dict[str, int]) -> str:
    why = ", ".join(f"{plain(code)}: {count}" for code, count in sorted(counts.items()))
    jobs = counted(sum(counts.values()), "queued job")
    return f"{jobs} without a SKU ({why}); see autoscaler jobs --unmatched"


def _print_faults(faults: list[Answer]) -> None:
    if not faults:
        typer.echo("nothing is wrong")
        return
    rows = [(one["code"], one["about"], one["message"]) for one in faults]
    print_table(("code", "where", "what is wrong"), rows, long=("what is wrong",))


def _sku_row(one: Answer) -> tuple[object, ...]:
    why = one["reasons"][0]["code"] if one["reasons"] else ""
    return (
        one["sku"],
        one["waiting"],
        duration(one["oldest"]) if one["waiting"] else "",
        "circuit_open" if one["circuit"] is not None and not why else why,
        one["running"],
        one["booting"],
        one["ready"],
        _of(one["machines"], one["max_machines"]),
    )


_TABLE_OF_JOBS: dict[str, tuple[str, tuple[str, ...]]] = {
    "waiting": ("no job waits", ("job", "SKU", "waits", "place", "why", "repository", "name")),
    "in_progress": ("no job is running", ("job", "SKU", "for", "machine", "repository", "name")),
    "unmatched": (
        "no queued job is without a SKU",
        ("job", "labels", "waits", "why", "repository", "name"),
    ),
}
"""What to say without jobs, and the columns, by the state of the jobs."""


def print_jobs(found: Answer, state: str) -> None:
    """Print a table of jobs in a state: waiting, in_progress or unmatched."""
    none, columns = _TABLE_OF_JOBS[state]
    if not found["jobs"]:
        typer.echo(none, err=True)
        return
    rows = [[_cell(job, column, found["at"]) for column in columns] for job in found["jobs"]]
    print_table(columns, rows, long=("SKU", "labels", "repository", "name"))


def _cell(job: Answer, column: str, now: float) -> object:
    wait = job["wait"]
    match column:
        case "job":
            return job["id"]
        case "SKU":
            return job["sku"]
        case "labels":
            return ", ".join(job["labels"])
        case "waits":
            return duration(now - job["queued_at"])
        case "for":
            return duration(now - (job["started_at"] or job["queued_at"]))
        case "place":
            return _place(wait)
        case "why":
            return wait["reasons"][0]["code"] if wait else ""
        case "machine":
            return job["machine"] or ""
        case "name":
            return job_name(job)
    return job[column]


def print_machines(found: Answer) -> None:
    """Print a table of machines."""
    machines, now = found["machines"], found["at"]
    if not machines:
        typer.echo("no machine", err=True)
        return
    print_table(
        ("machine", "SKU", "state", "for", "where", "ID at its provider", "job", "note"),
        [
            (
                one["id"],
                one["sku"],
                one["state"],
                duration(now - one["since"]),
                " ".join(
                    one[key] for key in ("instance_type", "zone", "capacity_type") if one[key]
                ),
                one["provider_id"] or "",
                one["job"] or "",
                one["operator_hold"]
                or one["unverified"]
                or one["interruption"]
                or one["reason"]
                or one["stage"],
            )
            for one in machines
        ],
        long=("SKU", "where", "ID at its provider", "note"),
    )


def print_history(rows: list[Answer]) -> None:
    """Print what happened, oldest first."""
    print_table(
        ("time", "what", "ID", "event", "detail"),
        [
            (moment(row["at"]), row["kind"], row["record"], row["event"], _with_code(row))
            for row in rows
        ],
        long=("detail",),
    )


def _with_code(row: Answer) -> str:
    """Return what a row says, after its reason code if it has one."""
    return ": ".join(filter(None, (row["code"], row["detail"])))


def _of(count: int, limit: int | None) -> str:
    return f"{count}" if limit is None else f"{count} of {limit}"


def _place(wait: Answer | None) -> str:
    return f"{wait['place']}/{wait['line']}" if wait is not None and wait["line"] else ""


def job_name(job: Answer) -> str:
    """Return the name of a job after that of its workflow."""
    return " / ".join(part for part in (job["workflow"], job["name"]) if part)
