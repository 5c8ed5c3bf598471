"""What to launch: for every job that nothing serves, oldest first, then for the parked minimum.

All caps hold at every moment; where one leaves too little for all, the oldest job goes first.
"""

import heapq
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from autoscaler.model.catalogue import Sku
from autoscaler.model.demand import DemandClass
from autoscaler.model.fleet import Fleet
from autoscaler.model.identifiers import SkuName
from autoscaler.model.plan import Launch
from autoscaler.planner.matching import Matching
from autoscaler.planner.placement import MAX_MACHINES_PER_CALL, Placement, Room, Search
from autoscaler.planner.registration import Turns


@dataclass(slots=True)
class ScaleUp:
    """What was decided: machines by placement, jobs served by class, and why the rest waits."""

    placed: Counter[Placement] = field(default_factory=Counter)
    launched: Counter[DemandClass] = field(default_factory=Counter)
    blocked: dict[DemandClass, str] = field(default_factory=dict)

    def launches(self) -> list[Launch]:
        """The calls to make, none larger than a provider takes."""
        calls = []
        for placement, count in self.placed.items():
            keys = tuple(offering.key for offering in placement.offerings)
            while count > 0:
                size = min(count, MAX_MACHINES_PER_CALL)
                calls.append(
                    Launch(
                        placement.sku,
                        placement.provider,
                        placement.rung,
                        placement.capacity_type,
                        keys,
                        size,
                    )
                )
                count -= size
        return calls


@dataclass(slots=True)
class _Placer:
    """Hands out placements of each SKU while there is room, and remembers why there is none."""

    fleet: Fleet
    room: Room
    result: ScaleUp
    current: dict[SkuName, Placement] = field(default_factory=dict)
    reasons: dict[SkuName, str] = field(default_factory=dict)

    def place(self, sku: Sku) -> bool:
        """Place one more machine of a SKU, if there is room anywhere on its ladder."""
        placement = self.current.get(sku.name)
        if placement is None or not self.room.takes(placement):
            search = Search(self.fleet, self.room, sku)
            placement = search.place()
            if placement is None:
                self.reasons[sku.name] = "; ".join(search.reasons) or "a cap leaves no room for it"
                return False
            self.current[sku.name] = placement
        self.room.take(placement)
        self.result.placed[placement] += 1
        return True


def scale_up(
    fleet: Fleet, room: Room, matching: Matching, turns: Turns, warm: Mapping[SkuName, int]
) -> ScaleUp:
    """Launch for unserved jobs and then for `warm`, the parked machines missing by SKU.

    What is placed is taken out of `room`.
    """
    result = ScaleUp()
    placer = _Placer(fleet, room, result)
    _for_jobs(fleet, matching, turns, placer)
    for name, missing in warm.items():
        for _ in range(missing):
            if not placer.place(fleet.catalogue.skus[name]):
                break
    return result


def _for_jobs(fleet: Fleet, matching: Matching, turns: Turns, placer: _Placer) -> None:
    unserved = {
        demand: missing
        for demand, queue in sorted(fleet.queues.items())
        if (missing := len(queue) - matching.matched[demand]) > 0
    }
    wanted: Counter[str] = Counter()
    for demand, missing in unserved.items():
        wanted[demand.account] += missing
    heap = [(_queued_at(fleet, d, matching.matched[d]), i, d) for i, d in enumerate(unserved)]
    heapq.heapify(heap)
    while heap:
        _, i, demand = heap[0]
        allowed = turns.allowed(demand.account, matching)
        if not turns.worth_a_call(demand.account, wanted[demand.account], allowed):
            allowed = 0
        if not _serve(fleet, demand, allowed, turns, placer):
            heapq.heappop(heap)
            continue
        position = matching.matched[demand] + placer.result.launched[demand]
        if position < len(fleet.queues[demand]):
            heapq.heapreplace(heap, (_queued_at(fleet, demand, position), i, demand))
        else:
            heapq.heappop(heap)


def _serve(fleet: Fleet, demand: DemandClass, allowed: int, turns: Turns, placer: _Placer) -> bool:
    if allowed <= 0:
        placer.result.blocked[demand] = "its turn to register at GitHub comes later"
        return False
    sku = fleet.catalogue.skus[demand.skus[0]]
    if not placer.place(sku):
        placer.result.blocked[demand] = placer.reasons[sku.name]
        return False
    turns.taken[demand.account] += 1
    placer.result.launched[demand] += 1
    return True


def _queued_at(fleet: Fleet, demand: DemandClass, position: int) -> float:
    return fleet.queues[demand].values()[position].queued_at
