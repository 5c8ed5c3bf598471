"""In which order jobs are matched to supply: the oldest first, but within their shares before others.

Of a SKU with a share for each repository, a repository's jobs that run and those that are matched
fill its share; its further jobs come after everybody's jobs that are within theirs, so that what
nobody else wants is used all the same. Within one class GitHub decides whose job a runner gets:
shares hold between repositories whose jobs are of different classes. It never says which supply
is used.
"""

import heapq
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from autoscaler.model.demand import DemandClass
from autoscaler.model.fleet import Fleet, Ordered
from autoscaler.model.identifiers import Instant, SkuName
from autoscaler.model.jobs import Job

_EVERYBODY = ""  # no repository is called so
_Turn = tuple[bool, Instant, int, str]


@dataclass(slots=True)
class Shares:
    """Jobs matched so far of SKUs with shares, by class and by SKU, and repository."""

    fleet: Fleet
    matched: Counter[tuple[DemandClass, str]] = field(default_factory=Counter)
    taken: Counter[tuple[SkuName, str]] = field(default_factory=Counter)

    def filled(self, demand: DemandClass, repository: str) -> bool:
        """Whether a repository has its share of the class's first SKU."""
        return repository != _EVERYBODY and filled(self.fleet, self.taken, demand, repository)

    def take(self, demand: DemandClass, repository: str) -> None:
        """One more job of a repository is matched."""
        if repository != _EVERYBODY:
            self.matched[demand, repository] += 1
            self.taken[demand.skus[0], repository] += 1


def filled(
    fleet: Fleet, taken: Mapping[tuple[SkuName, str], int], demand: DemandClass, repository: str
) -> bool:
    """Whether jobs that run and `taken` ones fill a repository's share of the class's first SKU."""
    place, sku = (demand.skus[0], repository), fleet.catalogue.skus.get(demand.skus[0])
    if sku is None or sku.share is None:
        return False
    return taken.get(place, 0) + fleet.running.get(place, 0) >= sku.share


class Order:
    """Whose turn it is: the class of the next job to match, until every class is served or stuck."""

    def __init__(
        self,
        classes: Sequence[DemandClass],
        shares: Shares,
        done: Sequence[int],
        numbers: Sequence[int],
    ) -> None:
        """`done` is by the classes' `numbers` how many, the oldest, are matched: read again each time."""
        self._classes, self._shares, self._done = classes, shares, done
        self._numbers = numbers
        fleet = shares.fleet
        self._lines: list[Mapping[str, Ordered[Job]]] = [
            fleet.queues_by_repository.get(demand) or {_EVERYBODY: fleet.queues[demand]}
            for demand in classes
        ]
        self._heap: list[_Turn] = []
        for number, lines in enumerate(self._lines):
            for repository in lines:
                self._queue(number, repository)

    def __iter__(self) -> Iterator[int]:
        """The class's number of each turn, to be answered with `served` or `stuck` before the next."""
        while self._heap:
            over, _, number, repository = self._heap[0]
            if over is self._shares.filled(self._classes[number], repository):
                yield self._numbers[number]
            else:  # its share was filled meanwhile
                heapq.heappop(self._heap)
                self._queue(number, repository)

    def served(self) -> None:
        """This turn's job is matched, and counted in `done`."""
        _, _, number, repository = heapq.heappop(self._heap)
        self._shares.take(self._classes[number], repository)
        self._queue(number, repository)

    def stuck(self) -> None:
        """This turn's class cannot be served, and so no later job of it can."""
        stuck = self._heap[0][2]
        self._heap = [turn for turn in self._heap if turn[2] != stuck]
        heapq.heapify(self._heap)

    def _queue(self, number: int, repository: str) -> None:
        demand, line = self._classes[number], self._lines[number][repository]
        whole = repository == _EVERYBODY
        done = (
            self._done[self._numbers[number]] if whole else self._shares.matched[demand, repository]
        )
        if done < len(line):
            over = self._shares.filled(demand, repository)
            turn = (over, line.values()[done].queued_at, number, repository)
            heapq.heappush(self._heap, turn)
