"""The classes of queued jobs, numbered once for each plan.

Matching works on the numbers, because hashing and comparing a DemandClass is slow.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from autoscaler.model.fleet import Fleet
from autoscaler.model.jobs.demand import DemandClass

_PIECE = 1024
_class_of = itemgetter(1)


@dataclass(slots=True)
class Classes:
    """Every class with a queue, sorted; the index is its number.

    `number` has the numbers by class, `waits` the number of waiting jobs, `accounts` the account whose
    registrations a class uses.
    """

    fleet: Fleet
    demands: list[DemandClass]
    number: dict[DemandClass, int]
    waits: list[int]
    accounts: list[str]
    _of_id: dict[int, int]
    _ages: list[list[int]] = field(default_factory=list)

    def all_served(self, matched: Mapping[DemandClass, int]) -> bool:
        """Return whether so many jobs of each class are all jobs of it."""
        return all(matched.get(d, 0) >= n for d, n in zip(self.demands, self.waits, strict=True))

    def by_age(self) -> Iterator[list[int]]:
        """Yield lists of class numbers, one for each queued job, oldest first, ties by number.

        Lazy, because most plans end long before the youngest job.
        """
        at = 0
        while at < len(self._ages) or self._more():
            yield self._ages[at]
            at += 1

    def _more(self) -> bool:
        begin = len(self._ages) * _PIECE
        waiting = self.fleet.waiting[begin : begin + _PIECE]
        if not waiting:
            return False
        try:
            self._ages.append(list(map(self._of_id.__getitem__, map(id, map(_class_of, waiting)))))
        except KeyError:  # an equal class, but another object
            self._ages.append([self.number[demand] for _, demand, _ in waiting])
        return True


def classes_of(fleet: Fleet) -> Classes:
    """Number the classes of a fleet's queues. O(classes); `by_age` costs O(jobs that it yields)."""
    demands = sorted(fleet.queues, key=order_of)
    number = {demand: n for n, demand in enumerate(demands)}
    waits = [len(fleet.queues[demand]) for demand in demands]
    accounts = [demand.account for demand in demands]
    of_id = {id(demand): n for n, demand in enumerate(demands)}
    return Classes(fleet, demands, number, waits, accounts, of_id)


def order_of(demand: DemandClass) -> tuple[str, str, tuple[str, ...], tuple[str, ...]]:
    """Return a sort key with the order of DemandClass, but faster."""
    return demand.scope, demand.runner_group, demand.labels, demand.skus


class Covering:
    """The runner pools that may serve a class, by the rule of `model.jobs.labels`, for many classes at once."""

    def __init__(self, runners: Sequence[DemandClass]) -> None:
        self._having: dict[tuple[str, str], dict[str, int]] = {}
        self._all: dict[tuple[str, str], int] = {}
        for number, runner in enumerate(runners):
            where = (runner.scope, runner.runner_group)
            having = self._having.setdefault(where, {})
            self._all[where] = self._all.get(where, 0) | 1 << number
            for label in runner.runner_labels:
                having[label] = having.get(label, 0) | 1 << number

    def of(self, demand: DemandClass) -> Iterable[int]:
        """Return the indexes of the covering pools, in their order."""
        where = (demand.scope, demand.runner_group)
        found = self._all.get(where, 0)
        if found:
            having = self._having[where]
            for label in demand.labels:
                found &= having.get(label, 0)
        while found:
            lowest = found & -found
            yield lowest.bit_length() - 1
            found ^= lowest
