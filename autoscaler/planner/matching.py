"""Which supply serves which class: a maximum matching, the oldest jobs first.

GitHub gives a job to any idle runner whose labels cover it, so supply is counted, not assigned.
Greedy by age with augmenting paths is both a maximum and fair to the oldest (the classes that
can be served together form a transversal matroid). It never says what to do with a match.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from autoscaler.model.demand import DemandClass
from autoscaler.model.fleet import Fleet
from autoscaler.model.identifiers import SkuName
from autoscaler.planner.classes import Classes, Covering, classes_of
from autoscaler.planner.flow import Flow
from autoscaler.planner.shares import Order, Shares

SPARE = "spare"  # no scope is called so: theirs begin with org: or repo:


class SupplyKind(IntEnum):
    """In the order in which supply is used."""

    RUNNER = 0
    READY = 1
    COMING = 2
    UNSENT = 3


_KINDS = tuple(SupplyKind)  # to go through an enumeration itself takes many times as long


class Supply(NamedTuple):
    """A pool of interchangeable supply: idle runners of a class, or machines of a SKU."""

    kind: SupplyKind
    runner_class: DemandClass | None = None
    sku: SkuName | None = None


_NONE = [0] * len(_KINDS)


@dataclass(slots=True)
class Matching:
    """How many jobs of each class each pool serves; `matched` are the oldest of the class.

    `machines` is by account how many jobs are served by machines that are to register yet;
    `taken` by SKU with shares and by repository how many are served. `flows` are the jobs of each class
    that each pool serves. `moved`: to serve them all, jobs had to move from one pool to another.
    """

    matched: Counter[DemandClass] = field(default_factory=Counter)
    used: Counter[Supply] = field(default_factory=Counter)
    machines: Counter[str] = field(default_factory=Counter)
    taken: Counter[tuple[SkuName, str]] = field(default_factory=Counter)
    flows: list[tuple[DemandClass, Supply, int]] = field(default_factory=list)
    kinds: dict[DemandClass, list[int]] = field(default_factory=dict)
    moved: bool = False

    def served(self, demand: DemandClass, kind: SupplyKind) -> int:
        """How many jobs of a class are served from pools of one kind."""
        return self.kinds.get(demand, _NONE)[kind]

    def add_launched(self, counts: Mapping[DemandClass, int]) -> None:
        """Count jobs of classes, or of ready minimums, that are served by a launch on their first SKU."""
        for demand, count in counts.items():
            pool = Supply(SupplyKind.UNSENT, sku=demand.skus[0])
            self.matched[demand] += count
            self.used[pool] += count
            self.kinds[demand][SupplyKind.UNSENT] += count
            self.flows.append((demand, pool, count))
            if demand.scope != SPARE:
                self.machines[demand.account] += count


def spare_class(sku: SkuName) -> DemandClass:
    """The demand for a SKU's ready minimum: like a class of jobs, but after all of them."""
    return DemandClass(SPARE, "", (), (sku,))


def match(
    fleet: Fleet,
    supply: Mapping[Supply, int],
    minimum: Mapping[SkuName, int],
    reach: Mapping[str, int] | None = None,
    classes: Classes | None = None,
) -> Matching:
    """Match every class's queue, then every SKU's ready minimum, to the supply.

    `reach` says by account how many machines could register before long: no account takes more
    as long as another can use them. O(jobs that could be matched) with a small factor, and
    O(classes x pools) each time that jobs have to move to other pools.
    """
    return _Problem(classes or classes_of(fleet), supply, minimum, reach or {}).solved(reach)


class _Problem:
    """The classes and pools of one matching by number, and the flow between them."""

    def __init__(
        self,
        classes: Classes,
        supply: Mapping[Supply, int],
        minimum: Mapping[SkuName, int],
        reach: Mapping[str, int],
    ) -> None:
        self._classes, self._minimum, self._reach = classes, minimum, reach
        runners = sorted(
            (s for s, n in supply.items() if s.kind is SupplyKind.RUNNER and n > 0),
            key=lambda pool: pool.runner_class or spare_class(SkuName("")),
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
        self._flow = Flow(
            pools,
            [supply[pool] for pool in self._pools],
            len(runners),
            [number_of[account] for account in classes.accounts],
        )

    def solved(self, reach: Mapping[str, int] | None) -> Matching:
        classes, flow = self._classes, self._flow
        shares = Shares(classes.fleet)
        short = self._short_of_turns()
        shared = self._shared(short)
        alone = sorted(set(range(len(classes.demands))) - set(shared))
        for bounds in (reach, None) if short else (None,):
            flow.bound(None if bounds is None else [bounds[account] for account in self._accounts])
            for number in alone:
                flow.take_all(number, classes.waits[number])
            self._by_age(shared, shares)
        self._keep_spares()
        return self._told(shares)

    def _machines_of(self, skus: tuple[SkuName, ...]) -> list[int]:
        return [known[sku] for known in self._of_sku for sku in skus if sku in known]

    def _short_of_turns(self) -> set[str]:
        """Accounts with more jobs than they could register machines for before long."""
        jobs: Counter[str] = Counter()
        for account, waits in zip(self._classes.accounts, self._classes.waits, strict=True):
            jobs[account] += waits
        return {account for account, n in jobs.items() if n > self._reach.get(account, n)}

    def _shared(self, short: set[str]) -> list[int]:
        """Classes that want what others want, or whose account has too few turns."""
        users = [0] * len(self._pools)
        for pools in self._flow.pools:
            for pool in pools:
                users[pool] += 1
        return [
            number
            for number, pools in enumerate(self._flow.pools)
            if self._classes.accounts[number] in short or any(users[pool] > 1 for pool in pools)
        ]

    def _by_age(self, shared: list[int], shares: Shares) -> None:
        """Serve the jobs of some classes, the oldest first, as far as they can be served."""
        classes, flow = self._classes, self._flow
        lines = classes.fleet.queues_by_repository
        if not lines or not any(classes.demands[number] in lines for number in shared):
            flow.serve(classes.by_age(), shared)
            return
        order = Order([classes.demands[n] for n in shared], shares, flow.matched, shared)
        for number in order:
            if flow.augment(number):
                order.served()
            else:
                order.stuck()

    def _keep_spares(self) -> None:
        """Serve the ready minimums from what the jobs leave, then by moving jobs elsewhere.

        Comes last, when no reach binds any more.
        """
        first = len(self._classes.demands)
        ready = set(self._of_sku[0].values())
        for sku, wanted in self._minimum.items():
            number = self._flow.add_spare(self._machines_of((sku,)), ready)
            self._flow.take_all(number, wanted)
        for number, wanted in enumerate(self._minimum.values(), first):
            while (missing := wanted - self._flow.matched[number]) > 0:
                if not self._flow.augment(number, missing):
                    break

    def _told(self, shares: Shares) -> Matching:
        """The result in words: classes and pools instead of their numbers."""
        demands = self._classes.demands
        found = Matching(taken=shares.taken, moved=self._flow.moved)
        everybody = [*demands, *(spare_class(sku) for sku in self._minimum)]
        kinds = [[0] * len(_KINDS) for _ in everybody]
        for pool, users in zip(self._pools, self._flow.users, strict=True):
            if users:
                found.used[pool] = sum(users.values())
            for number, count in users.items():
                kinds[number][pool.kind] += count
                found.flows.append((everybody[number], pool, count))
        found.kinds = dict(zip(everybody, kinds, strict=True))
        matched = zip(everybody, self._flow.matched, strict=True)
        found.matched.update({demand: count for demand, count in matched if count})
        for account, count in zip(self._accounts, self._flow.machines, strict=True):
            found.machines[account] = count
        return found
