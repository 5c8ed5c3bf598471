"""Whether the first page, the status, the lists, the charts and the explanations of a fleet say the same."""

from collections import Counter
from collections.abc import Iterator, Mapping

from autoscaler.console.pages import verdict
from autoscaler.controller.operators.recent_past import sample
from autoscaler.controller.reporting.fleet_counts import fleet_counts
from autoscaler.ledger.records.state import LedgerState
from autoscaler.model.cooldowns import avoided_hosts
from autoscaler.model.fleet import Fleet
from autoscaler.model.identifiers import JobId, SkuName
from autoscaler.model.jobs.job import Job, JobState
from autoscaler.model.machines.machine import MachineState
from autoscaler.model.operators import held
from autoscaler.model.reasons.faults import Fault
from autoscaler.model.reasons.table import DECIDED_BY_ACCESS, FaultCode, Unmatched
from autoscaler.views.grid import repositories
from autoscaler.views.jobs.explanation import explain_job
from autoscaler.views.jobs.lists import JobFilter, waiting_jobs
from autoscaler.views.jobs.waits import Reasons
from autoscaler.views.listed import Part
from autoscaler.views.overview import Overview
from autoscaler.views.status import SkuView, StatusView

NOT_SERVED = frozenset(Unmatched) | DECIDED_BY_ACCESS
"""The codes of jobs that get no machine, and do not count as waiting."""


def disagreements(
    seen: Overview, fleet: Fleet, reasons: Reasons, state: LedgerState
) -> Iterator[str]:
    """Yield what two answers of one moment say differently. `reasons` are those of the last plan."""
    waiting = Counter(str(job.demand.skus[0]) for job in _waiting(fleet) if job.demand)
    yield from _of_counts(seen.status, waiting, fleet, state)
    yield from _of_lists(seen.status, fleet, reasons)
    yield from _of_oldest(seen, fleet, reasons)
    yield from _of_faults(seen.status, fleet)
    yield from _of_verdict(seen.status)


def _waiting(fleet: Fleet) -> list[Job]:
    return [
        job
        for job in fleet.jobs.values()
        if job.state is JobState.QUEUED and job.demand is not None and not job.admission.is_refusal
    ]


def _differ(what: str, found: Mapping[str, object]) -> Iterator[str]:
    if len(set(map(str, found.values()))) > 1:
        yield f"{what}: {', '.join(f'{name} {value}' for name, value in found.items())}"


def _of_counts(
    seen: StatusView, waiting: Mapping[str, int], fleet: Fleet, state: LedgerState
) -> Iterator[str]:
    counted, of_repositories = (
        fleet_counts(state, fleet.now),
        repositories(fleet.jobs.values()),
    )
    yield from _differ(
        "waiting",
        {
            "status": seen.waiting,
            "SKUs": sum(one.waiting for one in seen.skus),
            "jobs": sum(waiting.values()),
            "chart": sample(state, fleet.now).waiting,
            "repositories": sum(one.waiting for one in of_repositories),
        },
    )
    for one in seen.skus:
        jobs, metric = waiting.get(one.sku, 0), counted.jobs_waiting.get(SkuName(one.sku), 0)
        yield from _differ(
            f"waiting for {one.sku}", {"status": one.waiting, "jobs": jobs, "metric": metric}
        )
        age = counted.oldest_waiting.get(SkuName(one.sku))
        yield from _differ(f"oldest of {one.sku}", {"status": one.oldest, "metric": age})
        if not 0 <= one.blocked <= one.waiting or not 0 <= one.overdue <= one.waiting:
            yield f"{one.sku}: {one.blocked} blocked, {one.overdue} overdue of {one.waiting}"
    running = sum(one.running for one in of_repositories)
    yield from _differ("running", {"status": seen.running, "repositories": running})


def _of_lists(seen: StatusView, fleet: Fleet, reasons: Reasons) -> Iterator[str]:
    listed = waiting_jobs(fleet, reasons, JobFilter(), Part(0, len(fleet.jobs)))
    explained = Counter[str]()
    for row in listed.rows:
        found = explain_job(fleet, reasons, fleet.jobs[JobId(row.id)])
        if found.job != row or row.wait is None:
            yield f"job {row.id}: listed with {row.wait}, explained with {found.job}"
        else:
            explained[row.wait.code.value] += 1
    yield from _differ(
        "reasons", {"list": sorted(listed.counts.items()), "explained": sorted(explained.items())}
    )
    refused = sum(count for code, count in listed.counts.items() if code in DECIDED_BY_ACCESS)
    yield from _differ("listed", {"list": listed.total - refused, "status": seen.waiting})


def _of_oldest(seen: Overview, fleet: Fleet, reasons: Reasons) -> Iterator[str]:
    with_jobs = {one.sku for one in seen.status.skus if one.waiting}
    if with_jobs != set(seen.oldest):
        yield f"{with_jobs} have waiting jobs, and {set(seen.oldest)} an oldest one"
    for one in seen.status.skus:
        if (row := seen.oldest.get(one.sku)) is None:
            continue
        found = explain_job(fleet, reasons, fleet.jobs[JobId(row.job.id)])
        why = found.job.wait.reasons if found.job is not None and found.job.wait else None
        of_row = row.job.wait.reasons if row.job.wait else None
        yield from _differ(
            f"why the oldest of {one.sku} waits",
            {"first page": of_row, "status": one.reasons, "explain": why},
        )
        yield from _differ(
            f"what happens next for {one.sku}",
            {"first page": row.next_event, "explain": found.next_event},
        )
        age = max(0.0, seen.status.at - row.job.queued_at)
        yield from _differ(f"oldest of {one.sku}", {"first page": age, "status": one.oldest})


def _of_faults(seen: StatusView, fleet: Fleet) -> Iterator[str]:
    if len({fault.key for fault in seen.faults}) < len(seen.faults):
        yield f"a cause twice: {[fault.key for fault in seen.faults]}"
    held_up = sum(fault.jobs for fault in seen.faults if fault.code not in NOT_SERVED)
    yield from _differ("jobs held up", {"faults": held_up, "status": seen.blocked})
    named = {sku for fault in seen.faults if fault.jobs for sku in fault.skus}
    for one in seen.skus:
        if one.blocked and one.sku not in named:
            yield f"{one.blocked} jobs of {one.sku} are blocked, and no fault holds them up"
    for fault in seen.faults:
        for one in seen.skus:
            if one.sku in fault.skus and not _is_wrong(one, fault, seen, fleet):
                yield f"{fault.key} names {one.sku}, with which nothing is wrong"


def _is_wrong(sku: SkuView, fault: Fault, seen: StatusView, fleet: Fleet) -> bool:
    """Return True if something of a SKU is as a fault says, by other answers than the fault itself."""
    starts = seen.last_hour.get(sku.sku)
    codes = {fault.code, *fault.effects}
    return bool(
        sku.blocked
        or sku.circuit is not None
        or (starts is not None and not starts.meets_target)
        or (sku.oldest or 0.0) > FaultCode.JOB_WAITS_FOR_HOURS.entry.threshold.above
        or any(target.name == sku.sku for _, target, _ in held(fleet.operator_holds))
        or any(one.sku == sku.sku for one in avoided_hosts(fleet.cooldowns, fleet.now))
        or (
            FaultCode.MACHINES_SILENT in codes
            and fleet.count(SkuName(sku.sku), MachineState.ASSIGNED)
        )
        or FaultCode.PROVIDER_NOT_LISTED in codes
        or not codes.isdisjoint({FaultCode.HEALTH_CHECKS_FAIL, FaultCode.JOB_OUTSIDE_ACCESS})
    )


def _of_verdict(seen: StatusView) -> Iterator[str]:
    lasting = [fault for fault in seen.faults if fault.recovered_at is None]
    wrong = bool(lasting or seen.overdue or seen.blocked)
    if verdict(seen).startswith("Fine") is wrong:
        yield f"{verdict(seen)!r}, with {len(lasting)} faults, {seen.overdue} overdue, {seen.blocked} blocked"
    if seen.blocked and not lasting:
        yield f"{seen.blocked} jobs are blocked without a fault"
