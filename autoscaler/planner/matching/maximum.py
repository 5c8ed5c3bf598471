"""Which supply serves which class: a maximum matching, oldest jobs first.

GitHub assigns a job to any idle runner with its labels, so supply is counted, not reserved. Matching the
oldest job first, with augmenting paths, serves the most jobs and prefers the oldest ones: the sets of jobs
that can be served together form a transversal matroid.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

from autoscaler.model.fleet import Fleet
from autoscaler.model.identifiers import SkuName
from autoscaler.model.jobs.demand import DemandClass
from autoscaler.planner.matching.classes import Classes, Covering, classes_of, order_of
from autoscaler.planner.matching.flow import Flow
from autoscaler.planner.matching.shares import MatchingOrder, Shares

READY_MINIMUM = "ready minimum"  # not a valid scope: scopes begin with org: or repo:


class SupplyKind(IntEnum):
    """The kinds of supply, in the order in which they are used.

    `COMING` machines are launching or booting. `UNSENT` ones are in launch requests not sent yet.
    """

    RUNNER = 0
    READY = 1
    COMING = 2
    UNSENT = 3


_KINDS = tuple(SupplyKind)  # iterating over the enumeration itself is many times slower


class Supply(NamedTuple):
    """A pool of interchangeable supply: idle runners of a class, or machines of a SKU."""

    kind: SupplyKind
    runner_class: DemandClass | None = None
    sku: SkuName | None = None


_NONE = [0] * len(_KINDS)


@dataclass(slots=True)
class Matching:
    """How many jobs of each class each pool serves.

    `matched` counts by class the served jobs, which are its oldest. `used` counts them by pool, `flows` by
    class and pool, `kinds` by class and kind of supply. `machines` counts by account the jobs served by
    machines that have yet to register. `taken` counts by SKU and repository the jobs that count against a
    share. `unregistrable` counts by SKU the machines that serve jobs beyond what their account can register
    soon: they stay ready until then. `moved`: more supply could change which other supply serves a job.
    """

    matched: Counter[DemandClass] = field(default_factory=Counter)
    used: Counter[Supply] = field(default_factory=Counter)
    machines: Counter[str] = field(default_factory=Counter)
    taken: Counter[tuple[SkuName, str]] = field(default_factory=Counter)
    unregistrable: Counter[SkuName] = field(default_factory=Counter)
    flows: list[tuple[DemandClass, Supply, int]] = field(default_factory=list)
    kinds: dict[DemandClass, list[int]] = field(default_factory=dict)
    moved: bool = False

    def served(self, demand: DemandClass, kind: SupplyKind) -> int:
        """Return how many jobs of a class are served by one kind of supply."""
        return self.kinds.get(demand, _NONE)[kind]

    def add_launched(self, counts: Mapping[DemandClass, int]) -> None:
        """Count jobs, or machines of ready minimums, that new machines of their first SKU serve."""
        for demand, count in counts.items():
            pool = pool_of(SupplyKind.UNSENT, demand.skus[0])
            self.matched[demand] += count
            self.used[pool] += count
            self.kinds[demand][SupplyKind.UNSENT] += count
            self.flows.append((demand, pool, count))
            if demand.scope != READY_MINIMUM:
                self.machines[demand.account] += count


@lru_cache(maxsize=1024)
def pool_of(kind: SupplyKind, sku: SkuName) -> Supply:
    """Return the pool of a SKU's machines, from a cache: a plan looks up some forty of them."""
    return Supply(kind, sku=sku)


@lru_cache(maxsize=1024)
def ready_minimum_class(sku: SkuName) -> DemandClass:
    """Return the class that stands for a SKU's ready minimum. It is served after all jobs."""
    return DemandClass(READY_MINIMUM, "", (), (sku,))


def match(
    fleet: Fleet,
    supply: Mapping[Supply, int],
    minimum: Mapping[SkuName, int],
    registrable: Mapping[str, int] | None = None,
    classes: Classes | None = None,
) -> Matching:
    """Match every class's queue, then every SKU's ready minimum, to the supply.

    `registrable` is by account how many machines can register soon. No account takes more machines
    while another account can use them. Unsent launch requests serve only the jobs that all other supply
    leaves unserved, so that adding them later gives the same result. O(matched jobs) with a small factor,
    and O(classes x pools) each time that jobs have to move to other pools.
    """
    if not fleet.queues and not minimum:
        return Matching()
    return _Problem(classes or classes_of(fleet), supply, minimum, registrable or {}).solved(
        registrable
    )


class _Problem:
    """The numbered classes and pools of one matching, and the flow between them."""

    def __init__(
        self,
        classes: Classes,
        supply: Mapping[Supply, int],
        minimum: Mapping[SkuName, int],
        registrable: Mapping[str, int],
    ) -> None:
        self._classes, self._minimum, self._registrable = classes, minimum, registrable
        runners = sorted(
            (s for s, n in supply.items() if s.kind is SupplyKind.RUNNER and n > 0),
            key=lambda pool: order_of(pool.runner_class or ready_minimum_class(SkuName(""))),
        )
        machines = [s for s, n in supply.items() if s.kind is not SupplyKind.RUNNER and n > 0]
        self._pools = [*runners, *machines]
        numbers: dict[SupplyKind, dict[SkuName | None, int]] = {kind: {} for kind in _KINDS}
        for number, pool in enumerate(machines, len(runners)):
            numbers[pool.kind][pool.sku] = number
        self._of_sku = [numbers[kind] for kind in _KINDS[1:]]
        covering = Covering([pool.runner_class for pool in runners if pool.runner_class])
        pools = [[*covering.of(d), *self._machines_of(d.skus)] for d in classes.demands]
        accounts = sorted(set(classes.accounts))
        number_of = {account: n for n, account in enumerate(accounts)}
        self._accounts = accounts
        self._unsent = {n: supply[self._pools[n]] for n in numbers[SupplyKind.UNSENT].values()}
        self._flow = Flow(
            pools,
            [0 if n in self._unsent else supply[pool] for n, pool in enumerate(self._pools)],
            len(runners),
            [number_of[account] for account in classes.accounts],
        )

    def solved(self, registrable: Mapping[str, int] | None) -> Matching:
        classes, flow = self._classes, self._flow
        shares = Shares(classes.fleet)
        limited = self._limited_accounts()
        shared = self._shared(limited)
        alone = sorted(set(range(len(classes.demands))) - set(shared))
        fair = self._has_fair_share(shared)
        if limited and registrable is not None:
            flow.limit([registrable[account] for account in self._accounts])
        if not fair:
            self._serve(alone, shared, shares, fair)
            flow.moved = False
        flow.add_supply(self._unsent)
        if fair or self._unsent:
            # A fair share orders jobs by what is matched so far, so all supply has to be there.
            self._serve(alone, shared, shares, fair)
        unregistrable = Counter[SkuName]()
        if limited:
            flow.limit(None)
            unregistrable.subtract(self._used_by_sku())
            self._serve(alone, shared, shares, fair)
            unregistrable.update(self._used_by_sku())
        self._serve_minimums()
        return self._result(shares, unregistrable)

    def _used_by_sku(self) -> Counter[SkuName]:
        """Return by SKU how many of its machines serve jobs."""
        used = Counter[SkuName]()
        for pool, users in zip(self._pools, self._flow.users, strict=True):
            if pool.sku is not None:
                used[pool.sku] += sum(users.values())
        return used

    def _machines_of(self, skus: tuple[SkuName, ...]) -> list[int]:
        return [known[sku] for known in self._of_sku for sku in skus if sku in known]

    def _limited_accounts(self) -> set[str]:
        """Return the accounts with more jobs than they can register machines for soon."""
        jobs: Counter[str] = Counter()
        for account, waits in zip(self._classes.accounts, self._classes.waits, strict=True):
            jobs[account] += waits
        return {account for account, n in jobs.items() if n > self._registrable.get(account, n)}

    def _shared(self, limited: set[str]) -> list[int]:
        """Return the classes that share a pool with others, or whose account is limited."""
        users = [0] * len(self._pools)
        for pools in self._flow.pools:
            for pool in pools:
                users[pool] += 1
        return [
            number
            for number, pools in enumerate(self._flow.pools)
            if self._classes.accounts[number] in limited or any(users[pool] > 1 for pool in pools)
        ]

    def _has_fair_share(self, shared: list[int]) -> bool:
        lines, demands = self._classes.fleet.queues_by_repository, self._classes.demands
        return bool(lines) and any(demands[number] in lines for number in shared)

    def _serve(self, alone: list[int], shared: list[int], shares: Shares, fair: bool) -> None:
        """Serve the jobs of these classes, oldest first, as far as possible."""
        classes, flow = self._classes, self._flow
        for number in alone:
            flow.take_all(number, classes.waits[number])
        if not fair:
            flow.serve(classes.by_age(), shared)
            return
        order = MatchingOrder([classes.demands[n] for n in shared], shares, flow.matched, shared)
        for number in order:
            if flow.augment(number):
                order.served()
            else:
                order.stuck()

    def _serve_minimums(self) -> None:
        """Serve the ready minimums from unused supply, then by moving jobs to other pools.

        Called last, when registration no longer limits the flow.
        """
        first = len(self._classes.demands)
        ready = set(self._of_sku[0].values())
        for sku, wanted in self._minimum.items():
            number = self._flow.add_ready_minimum(self._machines_of((sku,)), ready)
            self._flow.take_all(number, wanted)
        for number, wanted in enumerate(self._minimum.values(), first):
            while (missing := wanted - self._flow.matched[number]) > 0:
                if not self._flow.augment(number, missing):
                    break

    def _result(self, shares: Shares, unregistrable: Counter[SkuName]) -> Matching:
        """Return the result by classes and pools instead of their numbers."""
        demands = self._classes.demands
        found = Matching(taken=shares.taken, unregistrable=unregistrable, moved=self._flow.moved)
        all_classes = [*demands, *(ready_minimum_class(sku) for sku in self._minimum)]
        kinds = [[0] * len(_KINDS) for _ in all_classes]
        for pool, users in zip(self._pools, self._flow.users, strict=True):
            if users:
                found.used[pool] = sum(users.values())
            for number, count in users.items():
                kinds[number][pool.kind] += count
                found.flows.append((all_classes[number], pool, count))
        found.kinds = dict(zip(all_classes, kinds, strict=True))
        matched = zip(all_classes, self._flow.matched, strict=True)
        found.matched.update({demand: count for demand, count in matched if count})
        for account, count in zip(self._accounts, self._flow.machines, strict=True):
            found.machines[account] = count
        return found
