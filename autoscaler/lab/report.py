"""What a replay came to: waits, machines, money, calls, and everything that went wrong.

It computes and prints; whether the demo has passed follows from `violations` alone.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap

from rich.console import Console
from rich.table import Table

from autoscaler.lab.ec2.instances import Instance
from autoscaler.lab.github.records import Job, JobStatus
from autoscaler.lab.laboratory import Laboratory
from autoscaler.lab.live import clock
from autoscaler.lab.push import Push
from autoscaler.model.catalogue import OperatingSystem

PriceOf = Callable[[str, OperatingSystem], float]
"""Dollars an hour of an EC2 instance type. Raises ValueError for one it does not know."""

EC2_MINIMUM = 60.0
"""Seconds that EC2 bills at least (EC2 pricing: per second, 60 seconds at least)."""

_CALLS_SHOWN = 8

METRICS = (
    "autoscaler_build_info",
    "autoscaler_job_queue_duration_seconds_count",
    "autoscaler_job_queue_duration_seconds_sum",
    "autoscaler_jobs_completed_total",
    "autoscaler_launches_total",
    "autoscaler_launch_failures_total",
    "autoscaler_machines_ended_total",
    "autoscaler_deliveries_total",
    "autoscaler_loop_pass_duration_seconds_count",
)
"""Those of which the demo prints what is not zero, of SKUs the busiest one's."""


@dataclass(frozen=True, slots=True)
class SkuReport:
    """One SKU. `waits` are lab seconds from queued to started, ascending; `dollars` are instances'."""

    jobs: int
    waits: tuple[float, ...]
    machines: int
    dollars: float

    def wait(self, share: float) -> str:
        """The wait that this share of the jobs did not exceed (nearest rank)."""
        if not self.waits:
            return "-"
        return clock(self.waits[max(0, math.ceil(share * len(self.waits)) - 1)])


@dataclass(frozen=True, slots=True)
class Report:
    """All of it. `machine_hours` were billed; in `job_hours` of them a job ran."""

    skus: Mapping[str, SkuReport]
    seconds: float
    peak: int
    machines_left: int
    machine_hours: float
    ended: int
    job_hours: float
    github_calls: Counter[str]
    ec2_calls: Counter[str]

    @property
    def total(self) -> SkuReport:
        """All SKUs together."""
        rows = self.skus.values()
        return SkuReport(
            jobs=sum(row.jobs for row in rows),
            waits=tuple(sorted(wait for row in rows for wait in row.waits)),
            machines=sum(row.machines for row in rows),
            dollars=sum(row.dollars for row in rows),
        )


def make_report(lab: Laboratory, push: Push, price_of: PriceOf) -> Report:
    """Compute it from what the lab has seen. Raises what `price_of` raises."""
    now = lab.clock.now()
    machines: dict[str, list[Instance]] = {sku: [] for sku in push.skus}
    for instance in lab.ec2.instances:
        machines.setdefault(instance.tags.get("autoscaler:sku", "?"), []).append(instance)
    jobs = lab.github.jobs
    ended = [job.completed_at for job in jobs if job.completed_at is not None]
    began = min((job.created_at for job in jobs), default=now)
    return Report(
        skus={
            sku: _sku_report([job for job in jobs if job.spec.labels[0] == sku], found, price, now)
            for sku, found, price in (
                (sku, machines[sku], price_of(of.instance_type, of.os))
                for sku, of in push.skus.items()
            )
        },
        seconds=max(ended, default=now) - began,
        peak=lab.ec2.instances.peak,
        machines_left=len(lab.ec2.machines_left()),
        machine_hours=lab.ec2.machine_hours(),
        ended=len(ended),
        job_hours=sum(_ran(job) for job in jobs) / 3600,
        github_calls=_github_calls(lab),
        ec2_calls=Counter(lab.ec2.calls),
    )


def violations(lab: Laboratory) -> list[str]:
    """Every job that did not run exactly once and succeed; and once all have ended, what is left."""
    jobs = lab.github.jobs
    blocked = [job for job in jobs if job.status is JobStatus.BLOCKED]
    found = [_violation(job) for job in jobs if job not in blocked and not _is_right(job)]
    if blocked:
        found.append(f"{len(blocked)} jobs were never queued: they need jobs that have not ended")
    if not lab.github.unfinished:
        # Until then a machine may be there for a job that still waits.
        found += [f"left: {thing}" for thing in lab.left()]
    return found


def print_report(console: Console, report: Report) -> None:
    """The table, and what stands below it."""
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, show_footer=True)
    total = report.total
    cells = _cells(total)
    table.add_column("SKU", "all", overflow="fold")
    heads = ("jobs", "p50", "p95", "max", "machines", "cost")
    for head, cell in zip(heads, cells, strict=True):
        table.add_column(head, cell, justify="right", no_wrap=True)
    for sku, row in report.skus.items():
        table.add_row(sku, *_cells(row))
    console.print(table)
    console.print(
        "p50, p95, max: from queued to started, minutes and seconds of lab time.\n"
        "cost: on-demand prices of the instances for the lab time in which they ran."
    )
    console.print(_sentences(report))


def print_metrics(console: Console, metrics: Mapping[str, float], report: Report) -> None:
    """A few of the controller's own numbers, as scraped."""
    busiest = max(report.skus, key=lambda sku: report.skus[sku].machines)
    console.print("Some of /metrics, as scraped at the end:", style="bold")
    for name, value in metrics.items():
        if not name.startswith(METRICS) or not value:
            continue
        if 'sku="' in name and f'sku="{busiest}"' not in name:
            continue
        for line in _metric_lines(name, value, console.width):
            console.print(line, soft_wrap=True)


def _metric_lines(name: str, value: float, width: int) -> list[str]:
    """One metric; its labels stand below it where all of it is wider than the screen."""
    line = f"  {name} {value:g}"
    metric, _, labels = name.partition("{")
    if len(line) <= width or not labels:
        return [line]
    spaced = labels.removesuffix("}").replace('",', '", ')
    return [
        f"  {metric} {value:g}",
        *wrap(
            spaced, width, initial_indent=" " * 6, subsequent_indent=" " * 6, break_on_hyphens=False
        ),
    ]


def print_left_out(console: Console, push: Push) -> None:
    """The jobs of the push that were not replayed, by label."""
    if not push.left_out:
        return
    count = sum(one.count for one in push.left_out)
    console.print(f"Left out, as they do not run on EC2: {count} jobs.")
    for one in push.left_out:
        console.print(f"  {one.count} {one.label} ({one.why})")


def _sentences(report: Report) -> str:
    total = report.total
    busy = report.job_hours / report.machine_hours if report.machine_hours else 0.0
    return "\n".join(
        (
            f"{report.ended} of {total.jobs} jobs ended in {clock(report.seconds)} of lab time.",
            f"Machines: {total.machines} launched, {report.peak} at the peak, "
            f"{report.machines_left} left.",
            f"Cost: ${total.dollars:,.2f} for {report.machine_hours:.1f} machine hours, "
            f"{busy:.0%} of them with a job.",
            *_calls("GitHub", report.github_calls),
            *_calls("EC2", report.ec2_calls),
        )
    )


def _calls(whom: str, calls: Counter[str]) -> list[str]:
    """How many in all, and those that were made most, a line each."""
    most = [f"  {count} {name}" for name, count in calls.most_common(_CALLS_SHOWN)]
    return [f"Calls to {whom}: {calls.total()}, the most frequent:", *most]


def _github_calls(lab: Laboratory) -> Counter[str]:
    calls: Counter[str] = Counter()
    for (endpoint, _status), count in lab.github.calls.items():
        # Not the controller's: by this one each machine sees, before its job, that it has a way out.
        if endpoint != "GET /":
            calls[endpoint] += count
    return calls


def _sku_report(
    jobs: Sequence[Job], machines: Sequence[Instance], price: float, now: float
) -> SkuReport:
    waits = [
        job.started_at - job.queued_at
        for job in jobs
        if job.started_at is not None and job.queued_at is not None
    ]
    billed = (one.billed_seconds(now) for one in machines)
    seconds = sum(max(ran, EC2_MINIMUM) for ran in billed if ran > 0)
    return SkuReport(len(jobs), tuple(sorted(waits)), len(machines), seconds / 3600 * price)


def _cells(row: SkuReport) -> tuple[str, ...]:
    waits = (row.wait(share) for share in (0.5, 0.95, 1.0))
    return str(row.jobs), *waits, str(row.machines), f"${row.dollars:,.2f}"


def _ran(job: Job) -> float:
    if job.started_at is None or job.completed_at is None:
        return 0.0
    return job.completed_at - job.started_at


def _is_right(job: Job) -> bool:
    return len(job.starts) == 1 and job.conclusion == "success"


def _violation(job: Job) -> str:
    state = job.conclusion or job.status.value.replace("_", " ")
    lost = ", lost by the lab" if job.lost else ""
    return f"job {job.spec.name}: started {len(job.starts)} times, {state}{lost}"
