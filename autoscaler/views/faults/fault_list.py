"""What is wrong with the fleet: a fault for each cause, worst first."""

from collections import Counter
from collections.abc import Collection
from dataclasses import replace

from autoscaler.model.fleet import Fleet
from autoscaler.model.jobs.job import JobState
from autoscaler.model.reasons.faults import Fault
from autoscaler.model.reasons.table import CODES, FaultCode, WaitCode
from autoscaler.views.faults import of_jobs, of_machines
from autoscaler.views.faults.causes import by_cause
from autoscaler.views.faults.counts import Counts
from autoscaler.views.jobs.waiting import WaitingJobs
from autoscaler.views.quotas import use_of


def faults(fleet: Fleet, jobs: WaitingJobs, counts: Counts) -> tuple[Fault, ...]:
    """Return what is wrong now, a fault for each cause, the most urgent first. O(classes + SKUs + cooldowns).

    O(jobs) if a limit holds up jobs, to find the repository that uses it.
    """
    found = by_cause(
        (
            *of_jobs.blocked(fleet, jobs.runs),
            *of_machines.open_circuits(fleet),
            *counts.observed,
            *of_machines.counted_machines(fleet, counts),
            *of_machines.avoided_nodes(fleet),
            *of_machines.silent_machines(fleet),
            *of_jobs.not_served(fleet, jobs.undecided),
            *of_machines.holds(fleet),
            *of_jobs.long_waits(fleet, jobs),
            *of_jobs.late_starts(fleet.now, counts),
        )
    )
    return tuple(
        _completed(fleet, fault, counts) for fault in found if not _is_first_listing(fleet, fault)
    )


def _is_first_listing(fleet: Fleet, fault: Fault) -> bool:
    """Return True for a provider that is being listed after the start, while no job waits for it."""
    code = FaultCode.PROVIDER_NOT_LISTED
    soon = fleet.now - fleet.started_at < code.entry.threshold.above
    return fault.code == code and soon and not fault.jobs


def _completed(fleet: Fleet, fault: Fault, counts: Counts) -> Fault:
    """Return a fault with the numbers and names that complete its message, and its mend."""
    message, mends = fault.message, counts.mends
    if fault.jobs:
        jobs = "1 job waits" if fault.jobs == 1 else f"{fault.jobs:,} jobs wait"
        message = f"{jobs}: {message}"
    if fault.code == WaitCode.QUOTA:
        message += _quota_use(fleet, fault.about)
    if fault.code in _LIMITS and fault.jobs >= FLOOD:
        message += _busiest(fleet, fault.skus if fault.code not in _OF_ALL else ())
    if name := counts.image_names.get(fault.about):
        message += f"; the name of image {fault.about} is {name}"
    code = CODES.get(fault.code)
    mend = (
        mends.get(fault.error)
        or mends.get(fault.about.partition("/")[2])
        or (code.entry.mend.format(about=fault.about) if code is not None else "")
    )
    return replace(fault, message=message, mend=mend)


_OF_ALL = frozenset({WaitCode.FLEET_MACHINES, WaitCode.FLEET_DOLLARS, WaitCode.REGISTRATION_RATE})
_LIMITS = _OF_ALL | {WaitCode.MAX_MACHINES, WaitCode.QUOTA}
FLOOD = 10
"""From this number of jobs on that wait for a limit, the repository with more than half of all is named."""


def _quota_use(fleet: Fleet, quota: str) -> str:
    """Return how much of a quota the fleet's machines use, in the quota's own units (on EC2: vCPUs)."""
    used, limit = use_of(fleet, quota)
    if limit is None:
        return f"; the fleet uses {used:,} of it" if used else ""
    return f"; the fleet uses {used:,} of the {limit:,} that it may use"


def _busiest(fleet: Fleet, skus: Collection[str]) -> str:
    """Return which repository has most of the open jobs of these SKUs, or of all SKUs."""
    found = Counter(
        job.repository
        for job in fleet.jobs.values()
        if job.demand is not None
        and job.state in (JobState.QUEUED, JobState.IN_PROGRESS)
        and (not skus or job.demand.skus[0] in skus)
    )
    (name, most), every = next(iter(found.most_common(1)), ("", 0)), found.total()
    return f"; {most:,} of the {every:,} open jobs are of {name}" if 2 * most > every else ""
