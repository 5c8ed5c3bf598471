"""Which supply serves which class: a maximum matching, the oldest jobs first.

GitHub gives a job to any idle runner whose labels cover it, so supply is counted, not assigned.
Greedy by age with augmenting paths is both a maximum and fair to the oldest (the classes that
can be served together form a transversal matroid). It never says what to do with a match.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from autoscaler.model.demand import DemandClass
from autoscaler.model.fleet import Fleet
from autoscaler.model.identifiers import SkuName
from autoscaler.planner.shares import Order, Shares

_NO_BOUND = 1 << 60
_SPARE = "spare"  # no scope is called so: theirs begin with org: or repo:


class SupplyKind(IntEnum):
    """In the order in which supply is used."""

    RUNNER = 0
    PARKED = 1
    COMING = 2
    UNSENT = 3


@dataclass(frozen=True, slots=True, order=True)
class Supply:
    """A pool of interchangeable supply: idle runners of a class, or machines of a SKU."""

    kind: SupplyKind
    runner_class: DemandClass | None = None
    sku: SkuName | None = None


@dataclass(slots=True)
class Matching:
    """How many jobs of each class each pool serves; `matched` are the oldest of the class.

    `machines` is by account how many jobs are served by machines that are to register yet;
    `taken` by SKU with shares and by repository how many are served.
    """

    flow: Counter[tuple[DemandClass, Supply]] = field(default_factory=Counter)
    matched: Counter[DemandClass] = field(default_factory=Counter)
    used: Counter[Supply] = field(default_factory=Counter)
    machines: Counter[str] = field(default_factory=Counter)
    taken: Counter[tuple[SkuName, str]] = field(default_factory=Counter)

    def served(self, demand: DemandClass, kind: SupplyKind) -> int:
        """How many jobs of a class are served from pools of one kind."""
        return sum(n for (d, s), n in self.flow.items() if d == demand and s.kind is kind)


def covers(runner: DemandClass, demand: DemandClass) -> bool:
    """Whether GitHub may give a job of `demand` to a runner minted for `runner`."""
    return (
        runner.scope == demand.scope
        and runner.runner_group == demand.runner_group
        and set(runner.minted_labels).issuperset(demand.labels)
    )


def pools_of(
    demand: DemandClass, supply: Mapping[Supply, int], runners: Sequence[Supply]
) -> tuple[Supply, ...]:
    """The pools that may serve a class, in the order of use. `runners` are the runner pools."""
    pools = [s for s in runners if s.runner_class is not None and covers(s.runner_class, demand)]
    for kind in (SupplyKind.PARKED, SupplyKind.COMING, SupplyKind.UNSENT):
        pools.extend(pool for sku in demand.skus if (pool := Supply(kind, sku=sku)) in supply)
    return tuple(pools)


def spare_class(sku: SkuName) -> DemandClass:
    """The demand for a SKU's parked minimum: like a class of jobs, but after all of them."""
    return DemandClass(_SPARE, "", (), (sku,))


def match(
    fleet: Fleet,
    supply: Mapping[Supply, int],
    minimum: Mapping[SkuName, int],
    reach: Mapping[str, int] | None = None,
) -> Matching:
    """Match every class's queue, then every SKU's parked minimum, to the supply.

    `reach` says by account how many machines could register before long: no account takes more
    as long as another can use them. O(matched jobs), less where nothing is shared.
    """
    runner_pools = sorted(s for s, n in supply.items() if s.kind is SupplyKind.RUNNER and n > 0)
    pools = {d: pools_of(d, supply, runner_pools) for d in sorted(fleet.queues)}
    users = Counter(pool for chosen in pools.values() for pool in chosen)
    problem, shares = _Problem(pools, dict(supply)), Shares(fleet)
    problem.matching.taken = shares.taken
    short = _short_of_turns(fleet, reach or {})
    shared = [
        demand
        for demand, chosen in pools.items()
        if demand.account in short or any(users[pool] > 1 for pool in chosen)
    ]
    alone = [demand for demand in pools if demand not in shared]
    for bounds in (reach, None) if short else (None,):
        problem.reach = bounds
        for demand in alone:
            problem.take_all(demand, len(fleet.queues[demand]))
        _by_age(shared, shares, problem)
    problem.keep_spares({spare_class(sku): wanted for sku, wanted in minimum.items()})
    return problem.matching


def _short_of_turns(fleet: Fleet, reach: Mapping[str, int]) -> set[str]:
    """Accounts with more jobs than they could register machines for before long."""
    jobs: Counter[str] = Counter()
    for demand, queue in fleet.queues.items():
        jobs[demand.account] += len(queue)
    return {account for account, count in jobs.items() if count > reach.get(account, count)}


def _by_age(shared: list[DemandClass], shares: Shares, problem: "_Problem") -> None:
    order = Order(shared, shares, problem.matching.matched)
    for demand in order:
        if problem.augment(demand, set()):
            problem.matching.matched[demand] += 1
            order.served()
        else:
            order.stuck()


class _Problem:
    """The free supply, and the matching as it grows."""

    def __init__(
        self,
        pools: dict[DemandClass, tuple[Supply, ...]],
        free: dict[Supply, int],
    ) -> None:
        self.pools = pools
        self.free = free
        self.reach: Mapping[str, int] | None = None
        self.matching = Matching()

    def take_all(self, demand: DemandClass, wanted: int) -> None:
        """Serve a class from pools that no other class wants now, and whose account has turns enough."""
        wanted -= self.matching.matched[demand]
        for pool in self.pools[demand]:
            count = min(wanted, self.free[pool])
            if count > 0:
                self._take(demand, pool, count)
                self.matching.matched[demand] += count
                wanted -= count

    def keep_spares(self, minimum: Mapping[DemandClass, int]) -> None:
        """Serve the parked minimums from what the jobs leave, then by moving jobs elsewhere.

        Comes last, when no reach binds any more.
        """
        for spare, wanted in minimum.items():
            self.pools[spare] = pools_of(spare, self.free, ())
            self.take_all(spare, wanted)
        for spare, wanted in minimum.items():
            while self.matching.matched[spare] < wanted and self.augment(spare, set()):
                self.matching.matched[spare] += 1

    def augment(self, demand: DemandClass, visited: set[DemandClass]) -> bool:
        """Serve one more job of a class, moving others to different pools where need be."""
        visited.add(demand)
        for pool in self.pools[demand]:
            if self.free[pool] > 0 and self._within_reach(demand, pool) > 0:
                self._take(demand, pool, 1)
                return True
        for pool in self.pools[demand]:
            if demand.scope == _SPARE and pool.kind is SupplyKind.PARKED:
                # No job gives its parked machine up for the sake of a minimum.
                continue
            if self._within_reach(demand, pool) <= 0:
                return False  # nor any pool that follows: runners come first, machines are alike
            for other in self.pools:
                if self.matching.flow[other, pool] > 0 and other not in visited:
                    self._flow(other, pool, -1)  # its turn to register moves with it
                    if self.augment(other, visited):
                        self._flow(demand, pool, 1)
                        return True
                    self._flow(other, pool, 1)
        return False

    def _take(self, demand: DemandClass, pool: Supply, count: int) -> None:
        self.free[pool] -= count
        self.matching.used[pool] += count
        self._flow(demand, pool, count)

    def _flow(self, demand: DemandClass, pool: Supply, count: int) -> None:
        self.matching.flow[demand, pool] += count
        if pool.kind is not SupplyKind.RUNNER and demand.scope != _SPARE:
            self.matching.machines[demand.account] += count

    def _within_reach(self, demand: DemandClass, pool: Supply) -> int:
        """How many more of the pool's machines the class's account could register in time."""
        if self.reach is None or pool.kind is SupplyKind.RUNNER:
            return _NO_BOUND
        return self.reach[demand.account] - self.matching.machines[demand.account]
