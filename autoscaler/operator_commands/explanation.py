"""Why a job waits, what happens next, and what it waited for, as text for a terminal."""

import typer

from autoscaler.model.wording import duration, moment, sentence
from autoscaler.operator_commands.options import Answer, plain
from autoscaler.operator_commands.pages import job_name, print_history
from autoscaler.operator_commands.tables import print_line, print_table


def print_explanation(found: Answer) -> None:
    """Print why a job waits, in sentences, and what happened to it so far."""
    explained = found["explanation"]
    if explained is None:
        print_line("The job is over. This is what is kept of it:")
    else:
        for line in _sentences(explained, found["at"]):
            print_line(line)
        if explained["tried"]:
            typer.echo("")
            _print_tried(explained["tried"])
    _print_past(found["past"])
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
    named = f" ({plain(job_name(job))})" if job_name(job) else ""
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
        return [f"It {f'has run since {since}' if since else 'runs'}{where}."]
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


def _print_past(past: Answer) -> None:
    """Print what a job waited for, and the launches that failed meanwhile, if the history has any."""
    if past["waited_for"]:
        typer.echo("")
        print_line("What it waited for:")
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
        print_line("Launches of its SKUs that failed while it waited:")
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
