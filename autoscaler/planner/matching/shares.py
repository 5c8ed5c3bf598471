"""The order in which jobs are matched to supply: oldest first, jobs within a fair share before others.

A SKU may have a share for each repository. The running and matched jobs of a repository count against its
share. Jobs above the share come after all jobs within theirs, so that spare capacity is still used. Within
one class GitHub decides whose job a runner gets, so shares hold only between classes.
"""

import heapq
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from autoscaler.model.fleet import Fleet, Ordered
from autoscaler.model.identifiers import Instant, JobId, SkuName
from autoscaler.model.jobs.demand import DemandClass
from autoscaler.model.jobs.job import Job

_ALL_REPOSITORIES = ""  # not a valid name of a repository
_QueueHead = tuple[bool, Instant, int, str]


@dataclass(slots=True)
class Shares:
    """Jobs of SKUs with shares that are matched so far, by class or SKU, and repository."""

    fleet: Fleet
    matched: Counter[tuple[DemandClass, str]] = field(default_factory=Counter)
    taken: Counter[tuple[SkuName, str]] = field(default_factory=Counter)

    def filled(self, demand: DemandClass, repository: str) -> bool:
        """Return whether a repository has used up its share of the class's first SKU."""
        return repository != _ALL_REPOSITORIES and filled(
            self.fleet, self.taken, demand, repository
        )

    def take(self, demand: DemandClass, repository: str) -> None:
        """Count one more matched job of a repository."""
        if repository != _ALL_REPOSITORIES:
            self.matched[demand, repository] += 1
            self.taken[demand.skus[0], repository] += 1


def filled(
    fleet: Fleet, taken: Mapping[tuple[SkuName, str], int], demand: DemandClass, repository: str
) -> bool:
    """Return whether running and `taken` jobs use up a repository's share of the class's first SKU."""
    place, sku = (demand.skus[0], repository), fleet.catalogue.skus.get(demand.skus[0])
    if sku is None or sku.share is None:
        return False
    return taken.get(place, 0) + fleet.running.get(place, 0) >= sku.share


class MatchingOrder:
    """Yields the class of the next job to match, until every class is served or stuck."""

    def __init__(
        self,
        classes: Sequence[DemandClass],
        shares: Shares,
        done: Sequence[int],
        numbers: Sequence[int],
    ) -> None:
        """Order `classes` with these `numbers`.

        `done` has the count of matched jobs by class number, the oldest ones. It is read again each time.
        """
        self._classes, self._shares, self._done = classes, shares, done
        self._numbers = numbers
        fleet = shares.fleet
        self._lines: list[Mapping[str, Ordered[JobId, Job]]] = [
            fleet.queues_by_repository.get(demand) or {_ALL_REPOSITORIES: fleet.queues[demand]}
            for demand in classes
        ]
        self._heap: list[_QueueHead] = []
        for number, lines in enumerate(self._lines):
            for repository in lines:
                self._queue(number, repository)

    def __iter__(self) -> Iterator[int]:
        """Yield class numbers. Call `served` or `stuck` before taking the next one."""
        while self._heap:
            over, _, number, repository = self._heap[0]
            if over is self._shares.filled(self._classes[number], repository):
                yield self._numbers[number]
            else:  # its share was used up since it was queued
                heapq.heappop(self._heap)
                self._queue(number, repository)

    def served(self) -> None:
        """Report that the job is matched, and counted in `done`."""
        _, _, number, repository = heapq.heappop(self._heap)
        self._shares.take(self._classes[number], repository)
        self._queue(number, repository)

    def stuck(self) -> None:
        """Report that the class cannot be served, and so none of its later jobs."""
        stuck = self._heap[0][2]
        self._heap = [head for head in self._heap if head[2] != stuck]
        heapq.heapify(self._heap)

    def _queue(self, number: int, repository: str) -> None:
        demand, line = self._classes[number], self._lines[number][repository]
        whole = repository == _ALL_REPOSITORIES
        done = (
            self._done[self._numbers[number]] if whole else self._shares.matched[demand, repository]
        )
        if done < len(line):
            over = self._shares.filled(demand, repository)
            head = (over, line.values()[done].queued_at, number, repository)
            heapq.heappush(self._heap, head)
