"""Computes and prints the figures of a replay: waits, machines, cost and calls.

`verdict` decides whether the demo passed.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from autoscaler.model.catalogue import OperatingSystem
from autoscaler.model.wording import counted
from lab.ec2.instances import Instance
from lab.github.records import Job
from lab.kubernetes.lab_pods import LabPod, LabPods
from lab.laboratory import Laboratory
from lab.live import clock
from lab.push import Push
from lab.stored import Steps

PriceOf = Callable[[str, OperatingSystem], float]
"""Returns an instance type's price in dollars per hour. Raises ValueError if the type is unknown."""

EC2_MINIMUM = 60.0
"""Minimum billed time in seconds (EC2 pricing: per second, with a minimum of 60 seconds)."""

_MACHINES = {
    "EC2": "EC2: instances launched. ",
    "used": "used: EC2 instances or pods launched.\n",
}
_CALLS_SHOWN = 2
_WIDTH = 80


@dataclass(frozen=True, slots=True)
class PodReport:
    """The figures of all pods, and the controller's requests to the API server."""

    launched: int
    peak: int
    left: int
    calls: Counter[str]


@dataclass(frozen=True, slots=True)
class SkuReport:
    """The figures of one SKU. `waits` are lab seconds from queued to started. `added` is the controller's
    part of each wait in real seconds. Both are ascending. `dollars` is the cost of the instances or pods."""

    jobs: int
    waits: tuple[float, ...]
    added: tuple[float, ...]
    machines: int
    dollars: float

    def wait(self, share: float) -> str:
        """Return the wait that this share of the jobs did not exceed (nearest rank)."""
        return clock(_rank(self.waits, share)) if self.waits else "-"

    def controller(self, share: float) -> str:
        """Return the controller's part of the wait that this share of the jobs did not exceed."""
        if not self.added:
            return "-"
        seconds = _rank(self.added, share)
        return f"{seconds:.1f}s" if seconds < 9.95 else f"{seconds:.0f}s"


@dataclass(frozen=True, slots=True)
class Report:
    """The figures of a replay. A job ran during `job_hours` of the billed `machine_hours`.

    `scale` is lab seconds per real second. `peak` and `machines_left` are of EC2. `pods` is None without
    a cluster.
    """

    skus: Mapping[str, SkuReport]
    seconds: float
    scale: float
    peak: int
    machines_left: int
    machine_hours: float
    ended: int
    job_hours: float
    github_calls: Counter[str]
    ec2_calls: Counter[str]
    pods: PodReport | None = None

    @property
    def total(self) -> SkuReport:
        """Return the figures of all SKUs together."""
        rows = self.skus.values()
        return SkuReport(
            jobs=sum(row.jobs for row in rows),
            waits=tuple(sorted(wait for row in rows for wait in row.waits)),
            added=tuple(sorted(added for row in rows for added in row.added)),
            machines=sum(row.machines for row in rows),
            dollars=sum(row.dollars for row in rows),
        )


def make_report(
    lab: Laboratory, push: Push, price_of: PriceOf, steps: Mapping[str, Steps]
) -> Report:
    """Compute the report from the lab's records and the controller's, `steps` by runner name.

    Raises ValueError if `price_of` does not know an instance type.
    """
    now = lab.clock.now()
    machines: dict[str, list[Instance | LabPod]] = {sku: [] for sku in push.labels}
    for instance in lab.ec2.instances:
        machines.setdefault(instance.tags.get("autoscaler:sku", "?"), []).append(instance)
    for pod in lab.pods or ():
        machines.setdefault(pod.sku, []).append(pod)
    prices = {sku: price_of(found.instance_type, found.os) for sku, found in push.skus.items()}
    prices |= {sku: pods.dollars_per_hour for sku, pods in push.pods.items()}
    jobs = lab.github.jobs
    ended = [job.completed_at for job in jobs if job.completed_at is not None]
    began = min((job.created_at for job in jobs), default=now)
    return Report(
        skus={
            sku: _sku_report(
                [job for job in jobs if job.spec.labels[0] == sku],
                machines[sku],
                price,
                now,
                lambda job: _added(lab, job, steps),
            )
            for sku, price in prices.items()
        },
        seconds=max(ended, default=now) - began,
        scale=lab.fleet.scale,
        peak=lab.ec2.instances.peak,
        machines_left=len(lab.ec2.machines_left()),
        machine_hours=lab.ec2.machine_hours() + (lab.pods.hours() if lab.pods else 0.0),
        ended=len(ended),
        job_hours=sum(_ran(job) for job in jobs) / 3600,
        github_calls=_github_calls(lab),
        ec2_calls=Counter(lab.ec2.calls),
        pods=None if lab.pods is None else _pod_report(lab.pods),
    )


def print_report(console: Console, report: Report) -> None:
    """Print the table and the lines below it. With seven SKUs it fits a screen of 80 x 24."""
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, show_footer=True)
    cells = _cells(report.total)
    table.add_column("SKU", "all", overflow="fold")
    machines = "EC2" if report.pods is None else "used"
    heads = ("jobs", machines, "added", "max", "wait", "max", "cost")
    for head, cell in zip(heads, cells, strict=True):
        table.add_column(head, cell, justify="right", no_wrap=True)
    for sku, row in report.skus.items():
        table.add_row(sku, *_cells(row))
    console.print(table)
    console.print(
        f"{_MACHINES[machines]}added, max: median and longest wait for the controller\n"
        "in real seconds. wait, max: median and longest wait from queued to started in\n"
        f"lab time. Most of it is booting; each real second counts as {report.scale:g}."
    )
    console.print(_sentences(report))


def print_not_replayed(console: Console, push: Push) -> None:
    """Print how many jobs of the push were not replayed, and why."""
    reasons: Counter[str] = Counter()
    for one in push.not_replayed:
        reasons[one.why] += one.count
    if reasons:
        words = ", ".join(f"{count} ({why})" for why, count in reasons.items())
        console.print(f"Not replayed, because they do not run on EC2: {words}.")


def _sentences(report: Report) -> str:
    total = report.total
    busy = report.job_hours / report.machine_hours if report.machine_hours else 0.0
    pods = report.pods
    return "\n".join(
        (
            f"{report.ended} of {counted(total.jobs, 'job')} ended in {clock(report.seconds)} of lab time.",
            f"Machines: {total.machines - (pods.launched if pods else 0)} launched, "
            f"{report.peak} at the peak, {report.machines_left} left.",
            *(
                [f"Pods: {pods.launched} launched, {pods.peak} at the peak, {pods.left} left."]
                if pods
                else ()
            ),
            f"Cost: ${total.dollars:,.2f} for {report.machine_hours:.1f} machine hours, "
            f"{busy:.0%} of them with a job.",
            _calls("GitHub", report.github_calls),
            _calls("EC2", report.ec2_calls),
            *([_calls("Kubernetes", pods.calls)] if pods else ()),
        )
    )


def _calls(service: str, calls: Counter[str]) -> str:
    """Return a line with the number of calls and the most frequent ones."""
    line = f"Calls to {service}: {calls.total()}."
    for shown in range(1, _CALLS_SHOWN + 1):
        most = ", ".join(f"{count} {name}" for name, count in calls.most_common(shown))
        longer = f"Calls to {service}: {calls.total()}, most of them {most}."
        line = longer if len(longer) < _WIDTH else line
    return line


def _github_calls(lab: Laboratory) -> Counter[str]:
    calls: Counter[str] = Counter()
    for (endpoint, _status), count in lab.github.calls.items():
        # Machines make this call, not the controller: it checks that they can reach GitHub.
        if endpoint != "GET /":
            calls[endpoint] += count
    return calls


def _sku_report(
    jobs: Sequence[Job],
    machines: Sequence[Instance | LabPod],
    price: float,
    now: float,
    added: Callable[[Job], float | None],
) -> SkuReport:
    waits = [
        job.started_at - job.queued_at
        for job in jobs
        if job.started_at is not None and job.queued_at is not None
    ]
    billed = ((one.billed_seconds(now), isinstance(one, LabPod)) for one in machines)
    seconds = sum(ran if pod else max(ran, EC2_MINIMUM) for ran, pod in billed if ran > 0)
    parts = sorted(part for job in jobs if (part := added(job)) is not None)
    return SkuReport(
        len(jobs), tuple(sorted(waits)), tuple(parts), len(machines), seconds / 3600 * price
    )


def _added(lab: Laboratory, job: Job, steps: Mapping[str, Steps]) -> float | None:
    """Return the controller's part of a job's wait in real seconds, or None if it is not known.

    It is the time from `queued` to the launch of the job's machine, plus the time from that machine's
    `ready` to its assignment. The faster clock does not slow the controller, hence real seconds.
    """
    step = steps.get(job.starts[0]) if job.starts else None
    machine = _find(lab, step.instance) if step is not None else None
    if step is None or machine is None or job.queued_at is None:
        return None
    if step.ready_at is None or step.assigned_at is None:
        return None
    launching = max(0.0, machine.launched_at - job.queued_at)
    assigning = max(0.0, step.assigned_at - max(step.ready_at, job.queued_at))
    return (launching + assigning) / lab.fleet.scale


def _find(lab: Laboratory, machine: str) -> Instance | LabPod | None:
    """Return the instance or the pod of a provider's ID."""
    pod = lab.pods.find(machine) if lab.pods is not None else None
    return pod or lab.ec2.instances.find(machine)


def _pod_report(pods: LabPods) -> PodReport:
    return PodReport(len(list(pods)), pods.peak, len(pods.left()), pods.calls())


def _rank(ascending: Sequence[float], share: float) -> float:
    """Return the value that this share of the values does not exceed (nearest rank)."""
    return ascending[max(0, math.ceil(share * len(ascending)) - 1)]


def _cells(row: SkuReport) -> tuple[str, ...]:
    shares = (0.5, 1.0)
    return (
        str(row.jobs),
        str(row.machines),
        *(row.controller(share) for share in shares),
        *(row.wait(share) for share in shares),
        f"${row.dollars:,.2f}",
    )


def _ran(job: Job) -> float:
    if job.started_at is None or job.completed_at is None:
        return 0.0
    return job.completed_at - job.started_at
