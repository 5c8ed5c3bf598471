"""Which ready machines get a runner registration now, and which runners are deregistered.

The class of the oldest job comes first, while the rate limit of its account has registrations left.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import repeat
from operator import itemgetter

from autoscaler.model.cooldowns import active_cooldown, registration_key
from autoscaler.model.demand import DemandClass
from autoscaler.model.fleet import Fleet
from autoscaler.model.identifiers import Instant, JobId, SkuName
from autoscaler.model.plan import Assign, DeregisterRunner
from autoscaler.planner.classes import Classes
from autoscaler.planner.matching import Matching, Supply, SupplyKind
from autoscaler.planner.supply import FleetSupply

_moment = itemgetter(0)


def assignments(
    fleet: Fleet, classes: Classes, matching: Matching, supply: FleetSupply
) -> list[Assign]:
    """Return assignments of ready machines to the jobs matched to them.

    If a SKU has more ready machines than its jobs need, takes those that became ready last, so that
    the others reach their idle timeout. Of the taken machines the longest ready comes first.
    """
    queues = fleet.queues
    flows = sorted(
        (classes.number[demand], pool.sku, count)
        for demand, pool, count in matching.flows
        if pool.kind is SupplyKind.READY and pool.sku and demand in queues
    )
    needed: Counter[SkuName] = Counter()
    wanted: list[tuple[Instant, int]] = []
    for at, (number, sku, count) in enumerate(flows):
        needed[sku] += count
        jobs = _wanted(fleet, matching, classes.demands[number], count)
        wanted.extend(zip(map(_moment, jobs), repeat(at)))
    wanted.sort(key=_moment)  # stable: ties by class, then by SKU
    tokens = {account: int(level) for account, level in fleet.registrations.items()}
    free = {sku: iter(supply.ready[sku][-count:]) for sku, count in needed.items()}
    uses = [(classes.demands[number], free[sku]) for number, sku, _ in flows]
    found = []
    for _, at in wanted:
        demand, machines = uses[at]
        if tokens[demand.account] > 0:
            tokens[demand.account] -= 1
            found.append(Assign(next(machines)[1], demand))
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
    fleet: Fleet, matching: Matching, demand: DemandClass, count: int
) -> Sequence[tuple[Instant, JobId]]:
    """Return the first jobs of a class that no runner serves: no more than can be registered now."""
    if active_cooldown(fleet.cooldowns, registration_key(demand.scope), fleet.now) is not None:
        return ()
    count = min(count, int(fleet.registrations[demand.account]))
    skip = matching.served(demand, SupplyKind.RUNNER)
    return fleet.queues[demand].keys()[skip : skip + count]
