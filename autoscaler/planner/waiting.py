"""Why each queued job still waits, in words for a person. It never decides who is served.

Reasons are kept for runs of jobs of a class, oldest first, so that a queue of thousands costs
no more to explain than a queue of two.
"""

from autoscaler.model.cooldowns import Cooldown, active_cooldown, registration_key
from autoscaler.model.demand import DemandClass
from autoscaler.model.fleet import Fleet
from autoscaler.model.jobs import Admission
from autoscaler.model.plan import Waiting
from autoscaler.planner.matching import Matching, SupplyKind
from autoscaler.planner.scale_up import ScaleUp
from autoscaler.planner.shares import filled

NAMED_AT_MOST = 3
"""How many repositories with their share a reason names."""

_HELD = "GitHub did not give it to two runners that fit it: tried again now and then"

_ASKED = "GitHub is being asked what became of it"

_UNADMITTED = {
    Admission.UNREAD: "GitHub is being asked whether the job's run comes from a fork",
    Admission.FORK: "the job's run comes from a fork, and access.forks is false",
}

_BY_KIND = (
    "a runner is ready for it: GitHub has to hand it out",
    "a machine is ready for it and waits for its turn to register",
    "a machine for it is being launched or boots",
    "a machine for it is requested now",
)
"""By the number of the SupplyKind."""


def waiting_reasons(
    fleet: Fleet, matching: Matching, launched: ScaleUp
) -> dict[DemandClass, tuple[Waiting, ...]]:
    """The reasons by class.

    The counts add up to its queue, the held jobs, those in doubt and those that are not admitted.
    """
    reasons: dict[DemandClass, tuple[Waiting, ...]] = {}
    for demand, queue in fleet.queues.items():
        served = matching.kinds[demand]
        runs = [Waiting(count, _BY_KIND[kind]) for kind, count in enumerate(served) if count]
        if served[SupplyKind.READY] and (hold := _registering(fleet, demand)) is not None:
            reason = f"registering runners in {demand.scope} is held back: {hold.reason}"
            at = int(served[SupplyKind.RUNNER] > 0)
            runs[at] = Waiting(served[SupplyKind.READY], reason, blocked=True)
        if rest := len(queue) - sum(served):
            reason = launched.blocked.get(demand, "it is planned for next")
            runs.append(Waiting(rest, reason + _shares(fleet, matching, demand), True))
        reasons[demand] = tuple(runs)
    for demand, jobs in fleet.held.items():
        reasons[demand] = (*reasons.get(demand, ()), Waiting(len(jobs), _HELD, blocked=True))
    for demand, count in fleet.disputed.items():
        reasons[demand] = (*reasons.get(demand, ()), Waiting(count, _ASKED, blocked=True))
    for (demand, admission), count in sorted(fleet.unadmitted.items()):
        kept_out = Waiting(count, _UNADMITTED[admission], blocked=True, code=admission)
        reasons[demand] = (*reasons.get(demand, ()), kept_out)
    return reasons


def _registering(fleet: Fleet, demand: DemandClass) -> Cooldown | None:
    return active_cooldown(fleet.cooldowns, registration_key(demand.scope), fleet.now)


def _shares(fleet: Fleet, matching: Matching, demand: DemandClass) -> str:
    """Which repositories of a class wait for others, in words to add to a reason."""
    if not fleet.queues_by_repository:
        return ""
    sku, mine = demand.skus[0], fleet.queues_by_repository.get(demand, {})
    full = sorted(r for r in mine if filled(fleet, matching.taken, demand, r))
    # Within the class GitHub decides; and what had its share before goes by age as this does.
    others = (
        r
        for d, lines in fleet.queues_by_repository.items()
        if d != demand and d.skus[0] == sku
        for r in lines
    )
    if not full or all(r in full or filled(fleet, {}, demand, r) for r in others):
        return ""
    names = ", ".join(full[:NAMED_AT_MOST]) + (", ..." if len(full) > NAMED_AT_MOST else "")
    share = fleet.catalogue.skus[sku].share
    return f"; others go first, for it has its share of {sku} ({share} machines): {names}"
