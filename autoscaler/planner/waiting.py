"""The reasons why queued jobs still wait, for programs and operators.

One reason covers consecutive jobs of a class, oldest first. A queue of thousands therefore costs no more to
explain than a queue of two.
"""

from collections.abc import Collection, Iterator, Mapping

from autoscaler.model.cooldowns import Cooldown, RateLimit, active_cooldown, registration_key
from autoscaler.model.fleet import Fleet
from autoscaler.model.jobs.demand import DemandClass
from autoscaler.model.reasons.table import WaitCode
from autoscaler.model.reasons.waiting import Waiting, WaitReason
from autoscaler.planner.matching.maximum import Matching, SupplyKind
from autoscaler.planner.matching.shares import filled
from autoscaler.planner.scale_up import ScaleUp

_DISPUTED = WaitReason(WaitCode.JOB_UNCONFIRMED)
_NOT_PLANNED = WaitReason(WaitCode.NOT_PLANNED)

_BY_KIND = tuple(
    (WaitReason(code),)
    for code in (
        WaitCode.RUNNER_IDLE,
        WaitCode.MACHINE_READY,
        WaitCode.MACHINE_BOOTING,
        WaitCode.LAUNCH_PLANNED,
    )
)
"""Indexed by SupplyKind."""


def waiting_reasons(
    fleet: Fleet, matching: Matching, launched: ScaleUp
) -> dict[DemandClass, tuple[Waiting, ...]]:
    """Return the reasons by class.

    The counts of a class add up to its jobs that are queued, on hold, disputed and not admitted.
    """
    reasons: dict[DemandClass, tuple[Waiting, ...]] = {}
    for demand, queue in fleet.queues.items():
        served = matching.kinds[demand]
        runs = [Waiting(count, _BY_KIND[kind]) for kind, count in enumerate(served) if count]
        if served[SupplyKind.READY] and (hold := _registration_hold(fleet, demand)) is not None:
            reason = _registration_held(demand, hold)
            at = int(served[SupplyKind.RUNNER] > 0)
            runs[at] = Waiting(served[SupplyKind.READY], (reason,), blocked=True)
        if rest := len(queue) - sum(served):
            blocked = launched.blocked.get(demand, (_NOT_PLANNED,))
            runs.append(Waiting(rest, blocked + _full_shares(fleet, matching, demand), True))
        reasons[demand] = tuple(runs)
    for demand, waiting in outside_lines(fleet):
        reasons[demand] = (*reasons.get(demand, ()), waiting)
    return reasons


def outside_lines(fleet: Fleet) -> Iterator[tuple[DemandClass, Waiting]]:
    """Yield why jobs wait that stand in no line: GitHub or `access` decides about them first."""
    for demand, jobs in fleet.on_hold.items():
        for by_group in (True, False):
            held = [job for job in jobs.values() if by_group is not bool(job.passed_over)]
            if held:
                why = (not_assigned(demand, {job.repository for job in held}, refused=by_group),)
                yield demand, Waiting(len(held), why, blocked=True)
    for demand, count in fleet.disputed.items():
        yield demand, Waiting(count, (_DISPUTED,), blocked=True)
    for (demand, admission), count in sorted(fleet.unadmitted.items()):
        why = (WaitReason(WaitCode(admission.value)),)
        yield demand, Waiting(count, why, blocked=True)


def not_assigned(
    demand: DemandClass, repositories: Collection[str], *, refused: bool
) -> WaitReason:
    """Return why jobs of these repositories are on hold, with the settings at GitHub that may be the cause.

    `refused`: GitHub shows that the runner group does not admit the repositories. The settings are those of an
    organization's runner group (docs.github.com, "Managing access to self-hosted runners using groups").
    """
    kind, _, where = demand.scope.partition(":")
    variant = "refused" if refused else "" if kind == "org" else "repository"
    if variant != "repository":
        where = f"the runner group {demand.runner_group!r} of {where}"
    about = tuple(sorted(repositories))
    return WaitReason(WaitCode.NOT_ASSIGNED, about, where=where, variant=variant)


_LIMITS: Mapping[str, WaitCode] = {
    RateLimit.PRIMARY: WaitCode.GITHUB_PRIMARY_LIMIT,
    RateLimit.SECONDARY: WaitCode.GITHUB_SECONDARY_LIMIT,
}


def _registration_hold(fleet: Fleet, demand: DemandClass) -> Cooldown | None:
    return active_cooldown(fleet.cooldowns, registration_key(demand.scope), fleet.now)


def _registration_held(demand: DemandClass, hold: Cooldown) -> WaitReason:
    """Return why no runner registers. GitHub's rate limits have codes of their own."""
    code = _LIMITS.get(hold.error, WaitCode.REGISTRATION_ON_HOLD)
    about = demand.account if hold.error in _LIMITS else demand.scope
    return WaitReason(code, (about,), hold.reason, hold.until, error=hold.error)


def _full_shares(fleet: Fleet, matching: Matching, demand: DemandClass) -> tuple[WaitReason, ...]:
    """Return a reason that names the repositories that have used up their fair share.

    Empty if no repository with jobs of another class is preferred for that.
    """
    if not fleet.queues_by_repository:
        return ()
    sku, of_class = demand.skus[0], fleet.queues_by_repository.get(demand, {})
    full = sorted(r for r in of_class if filled(fleet, matching.taken, demand, r))
    # Within a class GitHub decides. A repository above its share before this plan is ordered by age too.
    others = (
        r
        for d, lines in fleet.queues_by_repository.items()
        if d != demand and d.skus[0] == sku
        for r in lines
    )
    if not full or all(r in full or filled(fleet, {}, demand, r) for r in others):
        return ()
    share = fleet.catalogue.skus[sku].share or 0  # without a share, none is used up
    return (WaitReason(WaitCode.FAIR_SHARE, tuple(full), count=share, where=sku),)
