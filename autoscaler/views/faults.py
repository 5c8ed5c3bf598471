"""What is wrong with the fleet: a fault for each cause, worst first."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from autoscaler.model.cooldowns import (
    AvoidedHost,
    Cooldown,
    avoided_hosts,
    boots_key,
    exits_key,
    open_circuit,
    open_options,
)
from autoscaler.model.fleet import Fleet
from autoscaler.model.identifiers import Instant, JobId, ProviderName, Seconds, SkuName
from autoscaler.model.jobs.demand import DemandClass
from autoscaler.model.jobs.job import Job, JobState
from autoscaler.model.machines.due import SILENCE, is_silent
from autoscaler.model.machines.machine import MachineState
from autoscaler.model.operators import TargetKind, held
from autoscaler.model.reasons.entry import Code
from autoscaler.model.reasons.faults import Fault
from autoscaler.model.reasons.table import (
    CODES,
    DECIDED_BY_ACCESS,
    FaultCode,
    WaitCode,
)
from autoscaler.model.reasons.waiting import Waiting, in_short
from autoscaler.model.wait_objectives import Starts, WaitObjective, objective_of
from autoscaler.model.wording import counted, duration, in_words
from autoscaler.views.causes import by_cause, cause_of_circuit, cause_of_wait, error_of
from autoscaler.views.jobs import undecided_jobs
from autoscaler.views.waits import Reasons, undecided_by


@dataclass(frozen=True, slots=True)
class Counts:
    """What the fleet's value does not have."""

    running: Mapping[SkuName, int]
    oldest: Mapping[SkuName, Seconds]
    dollars_per_hour: float
    unverified: int = 0
    not_terminating: int = 0
    foreign: int = 0
    providers_not_listed: tuple[str, ...] = ()
    observed: tuple[Fault, ...] = ()
    """Faults that only the metrics show."""
    last_hour: Mapping[str, Starts] = field(default_factory=dict)
    """The starts of the last hour by SKU, with the jobs that are overdue."""
    objectives: tuple[WaitObjective, ...] = ()
    mends: Mapping[str, str] = field(default_factory=dict)
    """What an operator can do, by the code of a provider's error or by a quota's name."""


@dataclass(frozen=True, slots=True)
class Run:
    """Waiting jobs of one class for one reason. For `blocked` of them, something has to be done or to end."""

    demand: DemandClass
    waiting: Waiting
    blocked: int

    @property
    def sku(self) -> SkuName:
        """Return the SKU under which the jobs are counted."""
        return self.demand.skus[0]


@dataclass(frozen=True, slots=True)
class WaitingJobs:
    """The jobs that wait, as the last plan explains them, and those outside every line as they are now."""

    runs: tuple[Run, ...]
    undecided: tuple[Job, ...]

    def of(self, sku: SkuName) -> list[Run]:
        """Return the runs of a SKU."""
        return [run for run in self.runs if run.sku == sku]


_READ_SOON = frozenset({WaitCode.JOB_UNCONFIRMED, WaitCode.RUN_UNKNOWN})
"""GitHub is asked about these jobs. The question is a fault only if the answer does not come."""


def waiting_jobs(fleet: Fleet, reasons: Reasons) -> WaitingJobs:
    """Return the waiting jobs, and how many are blocked. O(classes), and see `undecided_jobs`."""
    undecided = tuple(undecided_jobs(fleet, None))
    unanswered = Counter(
        (job.demand, code)
        for job in undecided
        if (code := undecided_by(fleet, job)) in _READ_SOON
        and fleet.now - job.queued_at >= code.entry.threshold.above
    )
    runs = []
    for demand, of_class in reasons.items():
        for run in of_class:
            blocked = run.count if run.blocked and run.code not in DECIDED_BY_ACCESS else 0
            if run.code in _READ_SOON:
                blocked = min(blocked, unanswered[demand, run.code])
            runs.append(Run(demand, run, blocked))
    return WaitingJobs(tuple(runs), undecided)


def overdue(
    fleet: Fleet, undecided: Sequence[Job], objectives: tuple[WaitObjective, ...]
) -> dict[str, int]:
    """Return the number of jobs by SKU that have waited for longer than its objective. O(classes log jobs)."""
    found: Counter[str] = Counter()
    for demand, queue in fleet.queues.items():
        if (objective := objective_of(objectives, demand.skus[0])) is not None:
            first_in_time = (fleet.now - objective.seconds, JobId(0))
            found[demand.skus[0]] += bisect_left(queue.keys(), first_in_time)
    for job in undecided:
        if job.demand is None or job.admission.is_refusal:
            continue
        objective = objective_of(objectives, job.demand.skus[0])
        if objective is not None and fleet.now - job.queued_at > objective.seconds:
            found[job.demand.skus[0]] += 1
    return {sku: count for sku, count in found.items() if count}


def circuits(fleet: Fleet, name: SkuName) -> Iterator[tuple[str, Cooldown]]:
    """Yield the open circuit breakers of the SKU, then those of its launch options after the option's name."""
    for key in (exits_key(name), boots_key(name)):
        if (row := open_circuit(fleet.cooldowns, key)) is not None:
            yield "", row
    for option, row in open_options(fleet.cooldowns, fleet.catalogue.skus[name]):
        yield option.provider, row


def faults(fleet: Fleet, jobs: WaitingJobs, counts: Counts) -> tuple[Fault, ...]:
    """Return what is wrong, a fault for each cause, the most urgent first. O(classes + SKUs + cooldowns).

    O(jobs) if a limit holds up jobs, to find the repository that uses it.
    """
    found = by_cause(
        (
            *_blocked(fleet, jobs.runs),
            *_circuits(fleet),
            *counts.observed,
            *_others(fleet, counts),
            *_avoided_nodes(fleet),
            *_silent_machines(fleet),
            *_not_served(fleet, jobs.undecided),
            *_held(fleet),
            *_long_waits(fleet, jobs, counts),
            *_late_starts(fleet.now, counts),
        )
    )
    busiest = _Busiest(fleet)
    return tuple(_completed(fault, busiest, counts.mends) for fault in found)


def _completed(fault: Fault, busiest: "_Busiest", mends: Mapping[str, str]) -> Fault:
    """Return a fault with the number of its jobs, the repository that floods it, and its mend."""
    message = fault.message
    if fault.jobs:
        jobs = "1 job waits" if fault.jobs == 1 else f"{fault.jobs:,} jobs wait"
        message = f"{jobs}: {message}"
    if fault.code in _LIMITS and fault.jobs >= FLOOD:
        message += busiest.of(fault.skus if fault.code not in _OF_ALL else ())
    code = CODES.get(fault.code)
    mend = (
        mends.get(error_of(fault.about.rpartition(" ")[2] + ": "))
        or mends.get(fault.about.partition("/")[2])
        or (code.entry.mend.format(about=fault.about) if code is not None else "")
    )
    return replace(fault, message=message, mend=mend)


_OF_ALL = frozenset({WaitCode.FLEET_MACHINES, WaitCode.FLEET_DOLLARS, WaitCode.REGISTRATION_RATE})
_LIMITS = _OF_ALL | {WaitCode.MAX_MACHINES, WaitCode.QUOTA}
FLOOD = 10
"""From this number of jobs on that wait for a limit, the repository with more than half of all is named."""


@dataclass(frozen=True, slots=True)
class _Busiest:
    fleet: Fleet

    def of(self, skus: Collection[str]) -> str:
        """Return which repository has most of the open jobs of these SKUs, or of all SKUs."""
        found = Counter(
            job.repository
            for job in self.fleet.jobs.values()
            if job.demand is not None
            and job.state in (JobState.QUEUED, JobState.IN_PROGRESS)
            and (not skus or job.demand.skus[0] in skus)
        )
        (name, most), every = next(iter(found.most_common(1)), ("", 0)), found.total()
        return f"; {most:,} of the {every:,} open jobs are of {name}" if 2 * most > every else ""


def _blocked(fleet: Fleet, runs: Sequence[Run]) -> Iterator[Fault]:
    """Return a fault for each run of blocked jobs."""
    for run in runs:
        if run.blocked:
            code, about = cause_of_wait(fleet, run.demand, run.waiting.reasons[0])
            breaker = WaitCode.CIRCUIT_OPEN
            effects = (breaker,) if run.waiting.code is breaker and code is not breaker else ()
            message = in_short(run.waiting.reasons)
            yield Fault(code.value, about, message, (run.sku,), run.blocked, effects=effects)


def _circuits(fleet: Fleet) -> Iterator[Fault]:
    """Return a fault for each open circuit breaker."""
    for sku in fleet.catalogue.skus:
        for provider, row in circuits(fleet, sku):
            code, about = cause_of_circuit(row, sku, provider)
            breaker = FaultCode.OPTION_CIRCUIT_OPEN if provider else WaitCode.CIRCUIT_OPEN
            found = Fault.of(breaker, about, sku=sku, provider=provider, words=row.reason)
            effects = (breaker.value,) if code is not breaker else ()
            yield replace(found, code=code.value, effects=effects)


def _avoided_nodes(fleet: Fleet) -> Iterator[Fault]:
    """Return a fault for each SKU that avoids nodes of a provider, with the nodes that failed first."""
    found: dict[tuple[SkuName, ProviderName], list[AvoidedHost]] = {}
    for one in avoided_hosts(fleet.cooldowns, fleet.now):
        found.setdefault((one.sku, one.provider), []).append(one)
    for (sku, provider), nodes in sorted(found.items()):
        named = [f"{one.host} ({_shortened(one.row.reason)})" for one in nodes[:_MOST_NODES]]
        more = [f"{len(nodes) - _MOST_NODES} more"] if len(nodes) > _MOST_NODES else []
        yield Fault.of(
            FaultCode.NODE_AVOIDED,
            sku=sku,
            nodes=counted(len(nodes), "node"),
            provider=provider,
            named=", ".join([*named, *more]),
        )


def _silent_machines(fleet: Fleet) -> Iterator[Fault]:
    """Return a fault for each SKU with assigned machines whose agents are silent. O(assigned machines)."""
    for sku in fleet.catalogue.skus:
        # The controller reads the runner of each silent machine at GitHub, and of few others.
        read = (
            one
            for one in fleet.machines_in(sku, MachineState.ASSIGNED)
            if one.work.read_at is not None and is_silent(one, fleet.now)
        )
        if silent := [str(one.id) for one in read]:
            more = [f"{len(silent) - _MOST_NAMED} more"] if len(silent) > _MOST_NAMED else []
            yield Fault.of(
                FaultCode.MACHINES_SILENT,
                sku=sku,
                machines=counted(len(silent), "machine"),
                named=", ".join([*silent[:_MOST_NAMED], *more]),
                time=duration(SILENCE),
            )


def _shortened(text: str) -> str:
    """Return the begin of a text."""
    return text if len(text) <= _MOST_WORDS else f"{text[: _MOST_WORDS - 3]}..."


_MOST_NODES = 3
"""Nodes that one message names. `autoscaler_node_avoided` has the others."""

_MOST_NAMED = 3
"""Silent machines that one message names. `autoscaler machines` has the others."""

_MOST_WORDS = 150
"""Characters of a node's failure in a message."""


def _not_served(fleet: Fleet, undecided: Sequence[Job]) -> Iterator[Fault]:
    """Return a fault for several or old jobs that no SKU serves, or that `access` refuses."""
    groups: dict[Code, Sequence[Job]] = {
        code: jobs.values() for code, jobs in fleet.unmatched.items() if len(jobs)
    }
    refused = [job for job in undecided if job.admission.is_refusal and not job.disputed]
    refused.sort(key=lambda one: one.queued_at)
    for refusal in DECIDED_BY_ACCESS:
        if of_code := [job for job in refused if job.admission.value == refusal]:
            groups[refusal] = of_code
    for code, jobs in groups.items():
        oldest = jobs[0]
        threshold, age = code.entry.threshold, fleet.now - oldest.queued_at
        if len(jobs) < threshold.above and age < threshold.within:
            continue
        labels = ", ".join(oldest.labels)
        which = (
            f"the oldest, of {oldest.repository} with runs-on [{labels}], waits for {duration(age)}"
        )
        yield Fault(code.value, "", f"{code.entry.sentence}; {which}", jobs=len(jobs))


def _long_waits(fleet: Fleet, jobs: WaitingJobs, counts: Counts) -> Iterator[Fault]:
    """Return a fault for each SKU whose oldest job has waited for hours, even with a machine on its way."""
    code = FaultCode.JOB_WAITS_FOR_HOURS
    for sku in fleet.catalogue.skus:
        oldest, runs = counts.oldest.get(sku, 0.0), jobs.of(sku)
        if oldest > code.entry.threshold.above and runs:
            most = max(runs, key=lambda run: (run.blocked, run.waiting.count))
            reasons = in_short(most.waiting.reasons)
            found = Fault.of(code, sku=sku, time=duration(oldest), reasons=reasons)
            yield replace(found, about="")


def _late_starts(now: Instant, counts: Counts) -> Iterator[Fault]:
    """Return a fault for each SKU that missed its objective in the last hour."""
    for sku, starts in sorted(counts.last_hour.items()):
        objective = objective_of(counts.objectives, sku)
        if objective is not None and not starts.meets_target:
            found = Fault.of(
                FaultCode.JOBS_START_LATE,
                sku=sku,
                late=counted(starts.late + starts.overdue, "job"),
                started=starts.started + starts.overdue,
                limit=in_words(objective.seconds),
                waiting=f"; {starts.overdue} {'wait' if starts.overdue > 1 else 'waits'} still"
                if starts.overdue
                else "",
                recovered_at=starts.recovered_at(now),
            )
            yield replace(found, about="")


def _held(fleet: Fleet) -> Iterator[Fault]:
    """Return a fault for each hold of an operator, as a reminder to resume it."""
    for kind, target, row in sorted(held(fleet.operator_holds), key=lambda one: one[:2]):
        yield Fault.of(
            CODES[kind],
            target.name,
            sku=target.name if target.kind is TargetKind.SKU else "",
            variant="reminder",
            words=row.reason,
            where=target,
        )


def _others(fleet: Fleet, counts: Counts) -> Iterator[Fault]:
    for provider in counts.providers_not_listed:
        skus = tuple(
            name
            for name, sku in fleet.catalogue.skus.items()
            if any(option.provider == provider for option in sku.launch_options)
        )
        yield replace(Fault.of(FaultCode.PROVIDER_NOT_LISTED, provider), skus=skus)
    for code, count in (
        (FaultCode.MACHINES_NOT_TERMINATING, counts.not_terminating),
        (FaultCode.MACHINES_UNVERIFIED, counts.unverified),
        (FaultCode.MACHINES_FOREIGN, counts.foreign),
    ):
        if count:
            yield Fault.of(code, machines=counted(count, "machine"))
