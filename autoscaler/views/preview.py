"""What a changed catalogue would launch, terminate and leave waiting now. Changes nothing."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sortedcontainers import SortedDict, SortedList

from autoscaler.ledger.records.class_cache import ClassCache
from autoscaler.model.catalogue import Catalogue, Offering
from autoscaler.model.fleet import Fleet
from autoscaler.model.identifiers import JobId
from autoscaler.model.jobs.demand import DemandClass
from autoscaler.model.jobs.job import Admission, Job
from autoscaler.model.plan import Launch, Plan, Terminate

MAX_TERMINATIONS = 250
"""Maximum number of terminations that a preview names. `terminated` counts all."""


@dataclass(frozen=True, slots=True)
class LaunchView:
    """Machines of a SKU that would be launched. `dollars_per_hour` is the price of all of them, at most."""

    sku: str
    provider: str
    capacity_type: str
    count: int
    dollars_per_hour: float


@dataclass(frozen=True, slots=True)
class TerminationView:
    """A machine that would be terminated."""

    machine: str
    sku: str
    reason: str
    why: str
    dollars_per_hour: float


@dataclass(frozen=True, slots=True)
class WaitingView:
    """Jobs of a SKU that would wait for the same reason. `blocked`: no machine would be on its way."""

    sku: str
    count: int
    code: str
    message: str
    blocked: bool


@dataclass(frozen=True, slots=True)
class Preview:
    """What the planner would do with the changed catalogue, as far as the rates allow it in one plan.

    `without_sku` is the number of queued jobs that no SKU would serve. As in `StatusView.unmatched`, jobs of
    GitHub's own runners and of other scopes do not count. Costs are US dollars an hour at the prices that count
    against the limits: before, and after the launches and terminations.
    """

    launches: tuple[LaunchView, ...]
    terminations: tuple[TerminationView, ...]
    terminated: int
    waiting: tuple[WaitingView, ...]
    without_sku: int
    dollars_before: float
    dollars_after: float


@dataclass(slots=True)
class Demand:
    """The offerings of another catalogue, and the queued jobs by its classes: see the fields of `Fleet`."""

    offerings: dict[str, Offering] = field(default_factory=dict)
    queues: dict[DemandClass, Any] = field(default_factory=dict)
    waiting: Any = field(default_factory=SortedList)
    on_hold: dict[DemandClass, dict[JobId, Job]] = field(default_factory=dict)
    disputed: Counter[DemandClass] = field(default_factory=Counter)
    unadmitted: Counter[tuple[DemandClass, Admission]] = field(default_factory=Counter)
    by_repository: dict[DemandClass, dict[str, Any]] = field(default_factory=dict)
    without_sku: int = 0


def demand_of(catalogue: Catalogue, jobs: Sequence[Job], held: frozenset[JobId]) -> Demand:
    """Return the demand of queued jobs under a catalogue. `held` are the jobs on hold.

    O(jobs x log jobs + offerings). Reads the jobs only, so that it may run in a thread.
    """
    found, classes = Demand(_offerings(catalogue)), ClassCache(catalogue)
    waiting = []
    for job in jobs:
        demand = classes.class_of(job.repository, job.labels)
        if demand is None:
            found.without_sku += classes.why_unmatched(job.repository, job.labels) is not None
            continue
        demand, admission = classes.admit(demand, job.origin)
        if job.disputed:
            found.disputed[demand] += 1
        elif admission is not Admission.ADMITTED:
            found.unadmitted[demand, admission] += 1
        elif job.id in held:
            found.on_hold.setdefault(demand, {})[job.id] = job
        else:
            found.queues.setdefault(demand, SortedDict())[job.queued_at, job.id] = job
            waiting.append((job.queued_at, demand, job.id))
            if catalogue.skus[demand.skus[0]].share is not None:
                queues = found.by_repository.setdefault(demand, {})
                queue = queues.setdefault(job.repository.lower(), SortedDict())
                queue[job.queued_at, job.id] = job
    found.waiting.update(waiting)
    return found


def _offerings(catalogue: Catalogue) -> dict[str, Offering]:
    return {
        offering.key: offering
        for sku in catalogue.skus.values()
        for option in sku.launch_options
        for offering in option.offerings
    }


def under(fleet: Fleet, catalogue: Catalogue, demand: Demand) -> Fleet:
    """Return the fleet with another catalogue and the demand under it."""
    accounts = {one.account for one in demand.queues} - fleet.registrations.keys()
    return replace(
        fleet,
        catalogue=catalogue,
        offerings=demand.offerings,
        queues=demand.queues,
        waiting=demand.waiting,
        on_hold=demand.on_hold,
        disputed=demand.disputed,
        unadmitted=demand.unadmitted,
        queues_by_repository=demand.by_repository,
        registrations={
            **fleet.registrations,
            **dict.fromkeys(accounts, float(catalogue.registration.burst)),
        },
    )


def preview(fleet: Fleet, plan: Plan, without_sku: int) -> Preview:
    """Return what a plan for the changed fleet would do."""
    launches = _launches(fleet, [one for one in plan.intents if isinstance(one, Launch)])
    every = [_termination(fleet, one) for one in plan.intents if isinstance(one, Terminate)]
    before = fleet.usage.dollars_per_hour
    more = sum(one.dollars_per_hour for one in launches)
    less = sum(one.dollars_per_hour for one in every)
    return Preview(
        launches=launches,
        terminations=tuple(every[:MAX_TERMINATIONS]),
        terminated=len(every),
        waiting=tuple(
            WaitingView(demand.skus[0], run.count, run.code.value, run.message, run.blocked)
            for demand, runs in sorted(plan.waiting.items())
            for run in runs
        ),
        without_sku=without_sku,
        dollars_before=before,
        dollars_after=max(0.0, before + more - less),
    )


def _launches(fleet: Fleet, launches: Sequence[Launch]) -> tuple[LaunchView, ...]:
    """Return the launch requests, those of the same SKU, provider and capacity type added up."""
    found: dict[tuple[str, str, str], LaunchView] = {}
    for one in launches:
        key = one.sku, one.provider, one.capacity_type.value
        known = found.get(key, LaunchView(*key, 0, 0.0))
        dollars = known.dollars_per_hour + _dearest(fleet, one) * one.count
        found[key] = replace(known, count=known.count + one.count, dollars_per_hour=dollars)
    return tuple(found.values())


def _dearest(fleet: Fleet, one: Launch) -> float:
    """Return the highest price of one machine of a launch request, in dollars an hour."""
    sku = fleet.catalogue.skus.get(one.sku)
    # The same offering has another price for another operating system.
    known = sku.launch_options[one.option].offerings if sku is not None else ()
    return max((o.dollars_per_hour for o in known if o.key in one.offerings), default=0.0)


def _termination(fleet: Fleet, one: Terminate) -> TerminationView:
    machine = fleet.machines[one.machine]
    return TerminationView(
        machine.id,
        machine.sku,
        one.reason_code.value,
        one.reason,
        machine.placement.dollars_per_hour,
    )
