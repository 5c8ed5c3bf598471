"""The state of the whole fleet in one look: each SKU, and what is wrong, worst first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from autoscaler.model.fleet import Fleet
from autoscaler.model.identifiers import Instant, Seconds, SkuName
from autoscaler.model.machines.machine import BOOTING_STATES, MachineState
from autoscaler.model.reasons.faults import Fault
from autoscaler.model.reasons.waiting import Reason
from autoscaler.model.wait_objectives import Starts, with_overdue
from autoscaler.views.faults.counts import Counts
from autoscaler.views.faults.fault_list import faults
from autoscaler.views.faults.of_machines import circuits
from autoscaler.views.jobs.waiting import Oldest, Run, overdue, waiting_jobs
from autoscaler.views.jobs.waits import Reasons


@dataclass(frozen=True, slots=True)
class SkuView:
    """One SKU. `waiting` jobs include `blocked` ones, for which no machine is on its way.

    The counts are of now; why jobs wait is as of the last plan. `overdue` jobs have waited for longer than the
    objective of the SKU. `oldest` is the age of the oldest waiting job in seconds, None if none waits, and
    `reasons` are why it waits. `circuit` is why the circuit breaker of the SKU, or of one of its launch
    options, is open; None if all are closed.
    """

    sku: str
    waiting: int
    blocked: int
    overdue: int
    oldest: Seconds | None
    reasons: tuple[Reason, ...]
    running: int
    booting: int
    ready: int
    machines: int
    max_machines: int | None
    circuit: str | None


@dataclass(frozen=True, slots=True)
class StatusView:
    """The fleet at one moment (Unix seconds). Limits are None where fleet.yaml sets none.

    `last_hour` are the starts of the last hour by SKU, with the jobs that are overdue now.
    `unmatched` is the number of queued jobs that no SKU serves, by reason. `waiting` does not include them.
    """

    fleet: str
    at: Instant
    waiting: int
    blocked: int
    overdue: int
    unmatched: Mapping[str, int]
    running: int
    machines: int
    machines_limit: int | None
    dollars_per_hour: float
    dollars_limit: float | None
    skus: tuple[SkuView, ...]
    faults: tuple[Fault, ...]
    last_hour: Mapping[str, Starts]


def status(fleet: Fleet, reasons: Reasons, counts: Counts) -> StatusView:
    """Return the state of the fleet. O(classes + SKUs x states), and see `faults`."""
    jobs = waiting_jobs(fleet, reasons)
    late = overdue(fleet, jobs.undecided, counts.objectives)
    counts = replace(counts, last_hour=with_overdue(counts.last_hour, late, counts.objectives))
    runs: dict[SkuName, list[Run]] = {}
    for run in jobs.runs:
        runs.setdefault(run.sku, []).append(run)
    skus = tuple(
        _sku(fleet, name, runs.get(name, ()), jobs.oldest.get(name), late.get(name, 0), counts)
        for name in fleet.catalogue.skus
    )
    limits = fleet.catalogue.limits
    return StatusView(
        fleet=fleet.catalogue.fleet,
        at=fleet.now,
        waiting=sum(sku.waiting for sku in skus),
        blocked=sum(sku.blocked for sku in skus),
        overdue=sum(sku.overdue for sku in skus),
        unmatched={code.value: len(jobs) for code, jobs in fleet.unmatched.items() if len(jobs)},
        running=sum(counts.running.values()),
        machines=fleet.usage.machines,
        machines_limit=limits.machines,
        dollars_per_hour=counts.dollars_per_hour,
        dollars_limit=limits.dollars_per_hour,
        skus=skus,
        faults=faults(fleet, jobs, counts),
        last_hour=counts.last_hour,
    )


def _sku(
    fleet: Fleet,
    name: SkuName,
    runs: Sequence[Run],
    oldest: Oldest | None,
    late: int,
    counts: Counts,
) -> SkuView:
    return SkuView(
        sku=name,
        waiting=sum(run.waiting.count for run in runs),
        blocked=sum(run.blocked for run in runs),
        overdue=late,
        oldest=max(0.0, fleet.now - oldest.job.queued_at) if oldest is not None else None,
        reasons=oldest.wait.reasons if oldest is not None else (),
        running=counts.running.get(name, 0),
        booting=sum(fleet.count(name, state) for state in BOOTING_STATES),
        ready=fleet.count(name, MachineState.READY),
        machines=fleet.usage.by_sku.get(name, 0),
        max_machines=fleet.catalogue.skus[name].max_machines,
        circuit=next(
            (
                f"launch option {provider}: {row.reason}" if provider else row.reason
                for provider, row in circuits(fleet, name)
            ),
            None,
        ),
    )
