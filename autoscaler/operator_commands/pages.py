"""The controller's answers as text for a terminal. Ages count by the controller's clock, not by this host's."""

from typing import Any

import typer

from autoscaler.model.wording import counted, duration, moment, sentence
from autoscaler.operator_commands.past import print_past
from autoscaler.operator_commands.tables import plain, print_table

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
    _print_troubles(seen["troubles"])
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


def _print_troubles(troubles: list[Answer]) -> None:
    if not troubles:
        typer.echo("nothing is wrong")
        return
    rows = [(one["code"], one["about"], one["message"]) for one in troubles]
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
            return _name(job)
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


def print_explanation(found: Answer) -> None:
    """Print why a job waits, in sentences, and what happened to it so far."""
    explained = found["explanation"]
    if explained is None:
        typer.echo("The job is over. This is what is kept of it:")
    else:
        for line in _sentences(explained, found["at"]):
            typer.echo(line)
        if explained["tried"]:
            typer.echo("")
            _print_tried(explained["tried"])
    print_past(found["past"])
    if found["history"]:
        typer.echo("")
        print_history(found["history"])


def _sentences(explained: Answer, now: float) -> list[str]:
    job, labels = explained["job"], plain(", ".join(explained["labels"]))
    if explained["unmatched"]:
        why = (
            f"No machine will be launched for the labels {labels}: {plain(explained['unmatched'])}."
        )
        started = job is not None and job["state"] in ("in_progress", "completed")
        return [why, *(_progress(job) if started else ())]
    skus = plain(", ".join(explained["skus"]))
    if job is None:
        return _of_labels(plain(explained["repository"]), labels, skus)
    named = f" ({plain(_name(job))})" if _name(job) else ""
    lines = [f"Job {job['id']} of {plain(job['repository'])}{named} runs on: {skus}."]
    wait = job["wait"]
    if wait is None:
        return [*lines, *_progress(job)]
    waited = duration(now - job["queued_at"])
    place = f", number {wait['place']} of {wait['line']} in line" if wait["line"] else ""
    lines.append(f"It has waited for {waited}{place}.")
    lines += [
        f"Why ({reason['code']}): {sentence(plain(reason['message']))}"
        for reason in wait["reasons"]
    ]
    return [*lines, _next(explained["next_event"], now)]


def _of_labels(repository: str, labels: str, skus: str) -> list[str]:
    if repository:
        return [f"A job of {repository} with the labels {labels} runs on: {skus}."]
    return [
        f"A job with the labels {labels} runs on: {skus}.",
        "Give --repository OWNER/NAME to see whether github.scopes and access admit it.",
    ]


def _progress(job: Answer) -> list[str]:
    where = f" on machine {plain(job['machine'])}" if job["machine"] else ""
    if job["state"] == "completed":
        ended = moment(job["completed_at"])
        return [f"It ended{f' at {ended}' if ended else ''}: {plain(job['conclusion'])}{where}."]
    if job["state"] == "in_progress":
        since = moment(job["started_at"])
        return [f"It runs{f' since {since}' if since else ''}{where}."]
    return [f"GitHub reports it as {plain(job['state'])}, so it does not need a machine yet."]


def _next(event: Answer, now: float) -> str:
    on = f" (machine {plain(event['machine'])})" if event["machine"] else ""
    what = f"Next: {plain(event['what'])}{on}"
    if event["at"] is None:
        return f"{what}. The time is not known."
    about = "about " if event["is_estimate"] else ""
    left = event["at"] - now
    when = f"in {duration(left)}" if left > 0 else "now"
    return f"{what}, {about}{moment(event['at'])} ({when})."


def _print_tried(tried: list[Answer]) -> None:
    rows = [
        (
            one["sku"],
            one["offering"],
            f"{one['dollars_per_hour']:.3f}",
            one["on_hold"] or "may be launched",
            moment(one["until"]),
        )
        for one in tried
    ]
    print_table(("SKU", "offering", "$/hour", "now", "until"), rows, long=("SKU", "now"))


def _of(count: int, limit: int | None) -> str:
    return f"{count}" if limit is None else f"{count} of {limit}"


def _place(wait: Answer | None) -> str:
    return f"{wait['place']}/{wait['line']}" if wait is not None and wait["line"] else ""


def _name(job: Answer) -> str:
    return " / ".join(part for part in (job["workflow"], job["name"]) if part)
