"""The controller's answers as text. Ages count by the controller's clock, not by this host's."""

import typer

from autoscaler.model.wording import counted, duration, moment, sentence
from autoscaler.operator_commands.options import Answer, plain
from autoscaler.operator_commands.tables import print_line, print_table


def print_status(seen: Answer, *, every: bool) -> None:
    """Print the state of the fleet: a summary, what is wrong, and a table of its SKUs."""
    print_line(f"{plain(seen['fleet'])} at {moment(seen['at'])}")
    print_line(f"{_waiting(seen['waiting'], seen['blocked'])}; {seen['running']} running")
    if seen["unmatched"]:
        print_line(_unmatched(seen["unmatched"]))
    cost = f"${seen['dollars_per_hour']:,.2f} an hour"
    count, most = seen["machines"], seen["machines_limit"]
    machines = f"{_of(count, most)} machine{'' if (most or count) == 1 else 's'}"
    limit = seen["dollars_limit"]
    print_line(f"{machines}, {cost}{f' (limit ${limit:,.2f})' if limit is not None else ''}")
    typer.echo("")
    _print_faults(seen["faults"], seen["at"])
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
        print_line(f"{which} neither jobs nor machines: --all lists them")


def _waiting(count: int, blocked: int) -> str:
    if blocked:
        return f"{count} waiting, {blocked} without a machine on its way"
    return f"{count} waiting, all with a machine on its way" if count else "0 waiting"


def _unmatched(counts: dict[str, int]) -> str:
    why = ", ".join(f"{plain(code)}: {count}" for code, count in sorted(counts.items()))
    jobs = counted(sum(counts.values()), "queued job")
    return f"{jobs} without a SKU ({why}); see autoscaler jobs --unmatched"


def _print_faults(faults: list[Answer], now: float) -> None:
    if not faults:
        print_line("nothing is wrong")
        return
    rows = [(one["code"], _where(one), _since(one, now), _with_mend(one)) for one in faults]
    print_table(("code", "where", "since", "what is wrong"), rows, long=("what is wrong",))


def _where(fault: Answer) -> str:
    """Return the SKUs of a fault, else what it concerns."""
    skus = fault["skus"]
    if not skus:
        return str(fault["about"])
    return ", ".join(skus[:_MOST_SKUS]) + (
        f", {len(skus) - _MOST_SKUS} more" if skus[_MOST_SKUS:] else ""
    )


_MOST_SKUS = 3


def _since(fault: Answer, now: float) -> str:
    if fault["recovered_at"] is not None:
        return f"recovered at {moment(fault['recovered_at'])}"
    began = duration(now - fault["since"]) if fault["since"] is not None else ""
    return began if fault["trend"] == "steady" else f"{began}, {fault['trend']}"


def _with_mend(fault: Answer) -> str:
    """Return what is wrong, what began just before, and what to do."""
    after = f" Just before it: {fault['after']}." if fault["after"] else ""
    mend = f" Next: {sentence(fault['mend'])}" if fault["mend"] else ""
    message = str(fault["message"])
    return f"{sentence(message)}{after}{mend}" if after or mend else message


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
    _print_rest(len(rows), found["total"], "job")


def _print_rest(shown: int, total: int, noun: str) -> None:
    """Say on stderr how many rows a list has, if it has more than these."""
    if shown < total:
        typer.echo(f"{shown} of {total:,} {noun}s: --page and --limit show others", err=True)


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


_OLDER = (
    "only machines that ended in the last 10 minutes; older ones: `autoscaler history ID`, with the ID of the "
    "machine or of its job, for 4 days"
)
"""As long as the ledger, and then the store, keeps them."""


def print_machines(found: Answer, *, ended: bool = False) -> None:
    """Print a table of machines, and where `ended` ones are after the controller has left them out."""
    machines, now = found["machines"], found["at"]
    if ended:
        typer.echo(_OLDER, err=True)
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
    _print_rest(len(machines), found["total"], "machine")


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


def print_preview(found: Answer) -> None:
    """Print what a changed fleet.yaml would do."""
    seen = found["preview"]
    for key in found["changed"]:
        print_line(f"changed: {plain(key)}")
    for key in found["needs_restart"]:
        print_line(f"not in this plan (a reload restarts the controller): {plain(key)}")
    for problem in found["refused"]:
        print_line(f"a reload would refuse this now: {plain(problem)}")
    if not found["changed"]:
        print_line("no changed key affects this plan")
    for limit in seen["exceeded"]:
        print_line(f"{plain(limit)}: none is launched until enough of them have ended")
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
        print_line(f"{jobs} would have no SKU")
    before, after = seen["dollars_before"], seen["dollars_after"]
    typer.echo("")
    print_line(
        f"cost at on-demand prices: ${before:,.2f} an hour now, ${after:,.2f} after this plan"
    )


def _print_launches(launches: list[Answer]) -> None:
    typer.echo("")
    if not launches:
        print_line("no machine would be launched")
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
        print_line("no machine would be terminated")
        return
    typer.echo("")
    print_table(
        ("terminate", "SKU", "reason", "why"),
        [(one["machine"], one["sku"], one["reason"], one["why"]) for one in shown],
        long=("SKU", "why"),
    )
    if total > len(shown):
        print_line(f"... and {total - len(shown)} more")
