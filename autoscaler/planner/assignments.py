"""Which ready machines get a runner registration now, and which runners are deregistered.

The class of the oldest job comes first, while the rate limit of its account has registrations left.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import chain, islice, repeat
from operator import itemgetter

from autoscaler.model.cooldowns import registration_key
from autoscaler.model.fleet import Fleet
from autoscaler.model.identifiers import MachineId, SkuName
from autoscaler.model.jobs.demand import DemandClass
from autoscaler.model.jobs.runners import RunnerState
from autoscaler.model.plan import Assign, DeregisterRunner
from autoscaler.planner.matching.classes import Classes
from autoscaler.planner.matching.maximum import Matching, Supply, SupplyKind
from autoscaler.planner.matching.supply import FleetSupply

_machine = itemgetter(1)


def assignments(
    fleet: Fleet, classes: Classes, matching: Matching, supply: FleetSupply
) -> list[Assign]:
    """Return assignments of ready machines to the jobs matched to them.

    If a SKU has more ready machines than its jobs need, takes those that became ready last, so that
    the others reach their idle timeout. Of the taken machines the longest ready comes first.
    O(waiting jobs up to the youngest that is assigned a machine) with a small factor.
    """
    demands, found = classes.demands, list[Assign]()
    machines = _machines(classes, matching, supply)
    tokens = {account: repeat(True, int(n)) for account, n in fleet.registrations.items()}
    # By class: how many of its oldest jobs are left, and how many of those wait for a ready machine.
    left, ready = [0] * len(demands), [0] * len(demands)
    for number in machines:
        demand = demands[number]
        ready[number] = _registrable(fleet, demand, matching.served(demand, SupplyKind.READY))
        if ready[number]:
            left[number] = matching.served(demand, SupplyKind.RUNNER) + ready[number]
    for piece in classes.by_age() if any(left) else ():
        for number in filter(left.__getitem__, piece):  # reads `left` again for each job
            left[number] -= 1
            if left[number] >= ready[number]:
                continue
            if next(tokens[demands[number].account], False):
                found.append(Assign(next(machines[number]), demands[number]))
            else:
                left[number] = 0
        if not any(left):
            break
    return found


def _machines(
    classes: Classes, matching: Matching, supply: FleetSupply
) -> dict[int, Iterator[MachineId]]:
    """Return the machines for the jobs of each class, by its number. SKUs are in the order of use.

    Classes share the machines of a SKU: whichever takes the next one gets the longest ready.
    """
    flows = [
        (classes.number[demand], pool.sku, count)
        for demand, pool, count in matching.flows
        if pool.kind is SupplyKind.READY and pool.sku and demand in classes.number
    ]
    needed: Counter[SkuName] = Counter()
    for _, sku, count in flows:
        needed[sku] += count
    free = {sku: map(_machine, supply.ready[sku][-count:]) for sku, count in needed.items()}
    found: dict[int, list[Iterator[MachineId]]] = {}
    for number, sku, count in flows:
        found.setdefault(number, []).append(islice(free[sku], count))
    return {number: chain.from_iterable(parts) for number, parts in found.items()}


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


def _registrable(fleet: Fleet, demand: DemandClass, wanted: int) -> int:
    """Return how many of a class's runners may be registered now.

    After a failure in its scope these are one at a time, until GitHub accepts one. GitHub refuses every
    authentication for a while after several invalid ones (GitHub documentation, "Authenticating to the REST
    API", failed login limit). Each class gets its own probe, because a failure may be of one class alone.
    """
    known = fleet.cooldowns.get(registration_key(demand.scope))
    if known is None or not known.failures:
        return wanted
    if known.until > fleet.now:
        return 0
    named = fleet.deregistrable.get(demand, {}).values()
    under_way = any(runner.state is RunnerState.NAMED for runner in named)
    return 0 if under_way else min(wanted, 1)
