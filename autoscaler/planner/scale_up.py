"""What to launch: for every job that nothing serves, oldest first, then for the ready minimum.

All caps hold at every moment; where one leaves too little for all, the oldest job goes first.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from autoscaler.model.catalogue import Sku
from autoscaler.model.demand import DemandClass
from autoscaler.model.fleet import Fleet
from autoscaler.model.identifiers import SkuName
from autoscaler.model.plan import Launch
from autoscaler.planner.classes import Classes
from autoscaler.planner.matching import Matching
from autoscaler.planner.placement import MAX_MACHINES_PER_REQUEST, Headroom, Placement, Search
from autoscaler.planner.registration import RegistrationBudget


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
                size = min(count, MAX_MACHINES_PER_REQUEST)
                calls.append(
                    Launch(
                        placement.sku,
                        placement.provider,
                        placement.option,
                        placement.capacity_type,
                        keys,
                        size,
                    )
                )
                count -= size
        return calls


@dataclass(slots=True)
class _Placer:
    """Hands out placements of each SKU while there is room, and remembers why there is none.

    Where there was none, there is none until more is placed: room only shrinks.
    """

    fleet: Fleet
    headroom: Headroom
    result: ScaleUp
    current: dict[SkuName, Placement] = field(default_factory=dict)
    reasons: dict[SkuName, str] = field(default_factory=dict)
    machines: int = 0
    _refused_at: dict[SkuName, int] = field(default_factory=dict)

    def place(self, sku: Sku) -> bool:
        """Place one more machine of a SKU, if there is room anywhere on its launch_options."""
        placement = self.current.get(sku.name)
        if placement is None or not self.headroom.takes(placement):
            if self._refused_at.get(sku.name) == self.machines:
                return False
            search = Search(self.fleet, self.headroom, sku)
            placement = search.place()
            if placement is None:
                self.reasons[sku.name] = "; ".join(search.reasons) or "a cap leaves no room for it"
                self._refused_at[sku.name] = self.machines
                return False
            self.current[sku.name] = placement
        self.headroom.take(placement)
        self.result.placed[placement] += 1
        self.machines += 1
        return True

    def place_warm(self, sku: Sku, missing: int) -> None:
        """Place as many machines of a SKU as there is room for, up to this."""
        while missing > 0 and self.place(sku):
            placement = self.current[sku.name]
            ahead = min(self.headroom.ahead(placement), self.headroom.ahead_of_all((placement,)))
            more = min(missing - 1, ahead)
            self.headroom.take(placement, more)
            self.result.placed[placement] += more
            self.machines += more
            missing -= 1 + more


def scale_up(
    classes: Classes,
    headroom: Headroom,
    matching: Matching,
    turns: RegistrationBudget,
    warm: Mapping[SkuName, int],
) -> ScaleUp:
    """Launch for unserved jobs and then for `warm`, the ready machines missing by SKU.

    What is placed is taken out of `headroom`.
    """
    result = ScaleUp()
    fleet = classes.fleet
    placer = _Placer(fleet, headroom, result)
    _ForJobs(classes, matching, turns, placer).run()
    for name, missing in warm.items():
        placer.place_warm(fleet.catalogue.skus[name], missing)
    return result


class _ForJobs:
    """Places a machine for each unserved job, the oldest first, many at a time where room is plenty."""

    def __init__(
        self, classes: Classes, matching: Matching, turns: RegistrationBudget, placer: _Placer
    ) -> None:
        self._classes, self._turns, self._placer = classes, turns, placer
        self._skip = [matching.matched[demand] for demand in classes.demands]
        self._skus = [placer.fleet.catalogue.skus[d.skus[0]] for d in classes.demands]
        names = sorted({sku.name for sku in self._skus})
        number = {name: n for n, name in enumerate(names)}
        self._names, self._sku_of = names, [number[sku.name] for sku in self._skus]
        self._left = self._turns_left(matching)
        self._launched = [0] * len(classes.demands)
        self._done = [False] * len(classes.demands)

    def run(self) -> None:
        """Go through the jobs that nothing serves yet, until each class is served or blocked."""
        open_ = sum(w > n for w, n in zip(self._classes.waits, self._skip, strict=True))
        self._look_ahead()
        for piece in self._classes.by_age() if open_ else ():
            at = 0
            while at < len(piece) and open_:
                at = self._quickly(piece, at)
                if at < len(piece):
                    open_ -= self._one(piece[at])
                    at += 1
            if not open_:
                break
        self._settle()
        demands, result = self._classes.demands, self._placer.result
        result.launched.update({d: n for d, n in zip(demands, self._launched, strict=True) if n})

    def _turns_left(self, matching: Matching) -> dict[str, int]:
        """By account, for how many machines a call is worth making now."""
        wanted: Counter[str] = Counter()
        classes = self._classes
        for account, waits, skip in zip(classes.accounts, classes.waits, self._skip, strict=True):
            wanted[account] += waits - skip
        left = {}
        for account, count in wanted.items():
            allowed = self._turns.allowed(account, matching)
            worth = self._turns.worth_a_call(count, allowed)
            left[account] = allowed if worth else 0
        return left

    def _look_ahead(self) -> None:
        """See how many machines may be placed in any case before a bound can be near."""
        placer, headroom = self._placer, self._placer.headroom
        self._current = [placer.current.get(name) for name in self._names]
        self._cost = [one.dollars if one is not None else 0.0 for one in self._current]
        self._ahead = [headroom.ahead(one) if one is not None else 0 for one in self._current]
        self._before, self._dollars = list(self._ahead), headroom.dollars
        self._most = headroom.ahead_of_all([one for one in self._current if one is not None])

    def _quickly(self, ages: Sequence[int], at: int) -> int:
        """Place as long as no bound can be near; the job at which it may be."""
        sku_of, accounts, left = self._sku_of, self._classes.accounts, self._left
        done, launched, skip, ahead = self._done, self._launched, self._skip, self._ahead
        most, dollars, cost = self._most, self._dollars, self._cost
        for at in range(at, len(ages)):  # noqa: B020
            number = ages[at]
            if skip[number]:
                skip[number] -= 1
            elif not done[number]:
                sku, account = sku_of[number], accounts[number]
                if not (most > 0 and ahead[sku] and left[account] > 0):
                    break
                ahead[sku] -= 1
                left[account] -= 1
                most -= 1
                launched[number] += 1
                dollars -= cost[sku]
        else:
            at = len(ages)
        self._most, self._dollars = most, dollars
        return at

    def _settle(self) -> None:
        """Count in what was placed quickly."""
        if self._ahead == self._before:
            return
        ahead = zip(self._current, self._before, self._ahead, strict=True)
        counts = {one: was - now for one, was, now in ahead if one is not None and was > now}
        if counts:
            self._placer.headroom.take_together(counts, self._dollars)
            self._placer.result.placed.update(counts)
            self._placer.machines += sum(counts.values())
            self._before = list(self._ahead)

    def _one(self, number: int) -> bool:
        """Place one machine; whether no more are placed for this class, and say why."""
        account, sku = self._classes.accounts[number], self._skus[number]
        blocked, demand = self._placer.result.blocked, self._classes.demands[number]
        if self._left[account] <= 0:
            blocked[demand] = "its turn to register at GitHub comes later"
            self._done[number] = True
            return True
        self._settle()
        if self._placer.place(sku):
            self._left[account] -= 1
            self._launched[number] += 1
            self._look_ahead()
            return False
        blocked[demand] = self._placer.reasons[sku.name]
        self._done[number] = True
        return True
