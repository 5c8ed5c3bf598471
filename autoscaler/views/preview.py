"""What a changed catalogue would launch, terminate and leave waiting now. Changes nothing."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from autoscaler.ledger.records.state import LedgerState
from autoscaler.model.catalogue import Catalogue
from autoscaler.model.fleet import Fleet
from autoscaler.model.jobs.job import Job
from autoscaler.model.plan import Launch, Plan, Terminate
from autoscaler.model.wording import counted
from autoscaler.planner.placement import ROUNDING

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
    GitHub's own runners and of other scopes do not count. `exceeded` says which limits the machines of now
    exceed: none is terminated for that, and none is launched meanwhile. Costs are US dollars an hour at the
    prices that count against the limits: before, and after the launches and terminations.
    """

    launches: tuple[LaunchView, ...]
    terminations: tuple[TerminationView, ...]
    terminated: int
    waiting: tuple[WaitingView, ...]
    without_sku: int
    exceeded: tuple[str, ...]
    dollars_before: float
    dollars_after: float


def demand_of(catalogue: Catalogue, jobs: Sequence[Job]) -> LedgerState:
    """Return a state that has copies of queued jobs only, with their classes under another catalogue.

    O(jobs x log jobs + offerings). Reads the jobs only, so that it may run in a thread.
    """
    found = LedgerState(catalogue)
    for job in map(replace, jobs):
        found.admit(job)
        found.index(job)
    return found


def under(fleet: Fleet, demand: LedgerState) -> Fleet:
    """Return the fleet with the catalogue of `demand_of`, and the demand under it."""
    accounts = {one.account for one in demand.queues} - fleet.registrations.keys()
    burst = float(demand.catalogue.registration.burst)
    return replace(
        fleet,
        catalogue=demand.catalogue,
        offerings=demand.offerings,
        queues=demand.queues,
        waiting=demand.waiting,
        on_hold=demand.on_hold,
        disputed=demand.disputed,
        unadmitted=demand.unadmitted,
        unmatched=demand.unmatched,
        queues_by_repository=demand.queues_by_repository,
        registrations={**fleet.registrations, **dict.fromkeys(accounts, burst)},
    )


def preview(fleet: Fleet, plan: Plan) -> Preview:
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
        without_sku=sum(map(len, fleet.unmatched.values())),
        exceeded=tuple(_exceeded(fleet)),
        dollars_before=before,
        dollars_after=max(0.0, before + more - less),
    )


def _exceeded(fleet: Fleet) -> Iterator[str]:
    """Yield the limits that the machines of now exceed, with their numbers."""
    limits, usage = fleet.catalogue.limits, fleet.usage
    if limits.machines is not None and usage.machines > limits.machines:
        has = counted(usage.machines, "machine")
        yield f"limits.machines is {limits.machines:,}, and the fleet has {has}"
    dollars = usage.dollars_per_hour
    if limits.dollars_per_hour is not None and dollars > limits.dollars_per_hour + ROUNDING:
        allowed = f"limits.dollars_per_hour is ${limits.dollars_per_hour:,.2f}"
        yield f"{allowed}, and the machines cost ${dollars:,.2f} an hour"
    for name, sku in fleet.catalogue.skus.items():
        exist = usage.by_sku.get(name, 0)
        if sku.max_machines is not None and exist > sku.max_machines:
            has = counted(exist, "machine")
            yield f"max_machines of {name} is {sku.max_machines:,}, and it has {has}"


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
