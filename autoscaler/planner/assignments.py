"""Which ready machines get a runner registration now, and which runners are deregistered.

The class of the oldest job comes first, while the rate limit of its account has registrations left.
"""

from collections import Counter, deque

from autoscaler.model.cooldowns import active_cooldown, registration_key
from autoscaler.model.demand import DemandClass
from autoscaler.model.fleet import Fleet
from autoscaler.model.identifiers import SkuName
from autoscaler.model.plan import Assign, DeregisterRunner
from autoscaler.planner.matching import Matching, Supply, SupplyKind
from autoscaler.planner.supply import FleetSupply


def assignments(fleet: Fleet, matching: Matching, supply: FleetSupply) -> list[Assign]:
    """Return assignments of ready machines to the jobs matched to them.

    If a SKU has more ready machines than its jobs need, takes those that became ready last, so that
    the others reach their idle timeout. Of the taken machines the longest ready comes first.
    """
    wanted: list[tuple[float, DemandClass, SkuName]] = []
    needed: Counter[SkuName] = Counter()
    for demand, pool, count in matching.flows:
        if pool.kind is SupplyKind.READY and pool.sku and demand in fleet.queues:
            needed[pool.sku] += count
            wanted.extend(_wanted(fleet, matching, demand, pool.sku, count))
    tokens = {account: int(level) for account, level in fleet.registrations.items()}
    free = {sku: deque(supply.ready[sku][-count:]) for sku, count in needed.items()}
    found = []
    for _, demand, sku in sorted(wanted):
        if tokens[demand.account] <= 0:
            continue
        tokens[demand.account] -= 1
        found.append(Assign(free[sku].popleft()[1], demand))
    return found


def surplus_registrations(
    fleet: Fleet, matching: Matching, supply: FleetSupply
) -> list[DeregisterRunner]:
    """Return deregistrations of runners that no job needs and no machine has fetched."""
    found: list[DeregisterRunner] = []
    for demand, runners in sorted(fleet.deregistrable.items()):
        pool = Supply(SupplyKind.RUNNER, runner_class=demand)
        surplus = supply.by_pool[pool] - matching.used[pool]
        fresh = [r for r in runners.values() if r.named_at >= fleet.started_at]
        fresh.sort(key=lambda runner: (runner.named_at, runner.name), reverse=True)
        found.extend(
            DeregisterRunner(r.name, "no queued job needs it") for r in fresh[: max(0, surplus)]
        )
    return found


def _wanted(
    fleet: Fleet, matching: Matching, demand: DemandClass, sku: SkuName, count: int
) -> list[tuple[float, DemandClass, SkuName]]:
    if active_cooldown(fleet.cooldowns, registration_key(demand.scope), fleet.now) is not None:
        return []
    count = min(count, int(fleet.registrations[demand.account]))
    skip = matching.served(demand, SupplyKind.RUNNER)
    jobs = fleet.queues[demand].values()[skip : skip + count]
    return [(job.queued_at, demand, sku) for job in jobs]
