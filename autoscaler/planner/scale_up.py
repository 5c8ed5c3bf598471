"""Plans launches: machines for every unserved job, oldest first, then for the ready minimums.

No launch exceeds a limit. If a limit leaves too little for all, the oldest jobs get machines first.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from autoscaler.model.catalogue import Catalogue, Sku
from autoscaler.model.demand import DemandClass
from autoscaler.model.fleet import Fleet
from autoscaler.model.identifiers import SkuName
from autoscaler.model.plan import Launch
from autoscaler.model.waiting import WaitCode, WaitReason
from autoscaler.planner.classes import Classes
from autoscaler.planner.matching import Matching, ready_minimum_class
from autoscaler.planner.placement import Headroom, Placement
from autoscaler.planner.registration import RegistrationBudget
from autoscaler.planner.search import Search

_REGISTRATION_RATE = WaitReason(
    WaitCode.REGISTRATION_RATE,
    "the registration rate limit (github.registrations) allows no further runner yet",
)


@dataclass(slots=True)
class ScaleUp:
    """The result: machines by placement, what they serve by class, and why the others wait.

    `overtaken`: a machine was placed although an older job got none.
    """

    placed: Counter[Placement] = field(default_factory=Counter)
    launched: Counter[DemandClass] = field(default_factory=Counter)
    blocked: dict[DemandClass, tuple[WaitReason, ...]] = field(default_factory=dict)
    overtaken: bool = False

    def launches(self, catalogue: Catalogue) -> list[Launch]:
        """Return the launch requests to make, none larger than its provider accepts."""
        requests = []
        for placement, count in self.placed.items():
            largest = catalogue.largest_request(placement.provider)
            keys = tuple(offering.key for offering in placement.offerings)
            while count > 0:
                size = min(count, largest)
                requests.append(
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
        return requests


@dataclass(slots=True)
class _Placer:
    """Places machines of each SKU while there is headroom, and records the reason if there is none.

    A refused SKU is not searched again until another machine is placed: headroom only shrinks.
    """

    fleet: Fleet
    headroom: Headroom
    result: ScaleUp
    current: dict[SkuName, Placement] = field(default_factory=dict)
    reasons: dict[SkuName, tuple[WaitReason, ...]] = field(default_factory=dict)
    machines: int = 0
    _refused_at: dict[SkuName, int] = field(default_factory=dict)

    def place(self, sku: Sku) -> bool:
        """Place one more machine of a SKU, if one of its launch options has headroom. Return True if so."""
        placement = self.current.get(sku.name)
        if placement is None or not self.headroom.takes(placement):
            if self._refused_at.get(sku.name) == self.machines:
                return False
            search = Search(self.fleet, self.headroom, sku)
            placement = search.place()
            if placement is None:
                self.reasons[sku.name] = tuple(search.reasons)
                self._refused_at[sku.name] = self.machines
                return False
            self.current[sku.name] = placement
        self.headroom.take(placement)
        self.result.placed[placement] += 1
        self.machines += 1
        return True

    def place_ready_minimum(self, sku: Sku, missing: int) -> int:
        """Place up to `missing` machines of a SKU, as far as there is headroom. Return how many."""
        before = self.machines
        while missing > 0 and self.place(sku):
            placement = self.current[sku.name]
            ahead = min(self.headroom.ahead(placement), self.headroom.ahead_of_all((placement,)))
            more = min(missing - 1, ahead)
            self.headroom.take(placement, more)
            self.result.placed[placement] += more
            self.machines += more
            missing -= 1 + more
        return self.machines - before


def scale_up(
    classes: Classes,
    headroom: Headroom,
    matching: Matching,
    budget: RegistrationBudget,
    minimums: Mapping[SkuName, int],
) -> ScaleUp:
    """Launch for unserved jobs, and then for `minimums`: the missing machines of ready minimums by SKU.

    Takes what it places out of `headroom`.
    """
    result = ScaleUp()
    fleet = classes.fleet
    placer = _Placer(fleet, headroom, result)
    jobs = _JobPlacer(classes, matching, budget, placer)
    jobs.run()
    for name, missing in minimums.items():
        count = placer.place_ready_minimum(fleet.catalogue.skus[name], missing)
        if count:
            result.launched[ready_minimum_class(name)] = count
    result.overtaken = jobs.first_refusal is not None and placer.machines > jobs.first_refusal
    return result


class _JobPlacer:
    """Places a machine for each unserved job, oldest first; in batches while no limit is near.

    `first_refusal` is the number of machines that were placed when the first job got none.
    """

    def __init__(
        self, classes: Classes, matching: Matching, budget: RegistrationBudget, placer: _Placer
    ) -> None:
        self._classes, self._budget, self._placer = classes, budget, placer
        self._matched = [matching.matched[demand] for demand in classes.demands]
        self._skip = list(self._matched)
        self._skus = [placer.fleet.catalogue.skus[d.skus[0]] for d in classes.demands]
        names = sorted({sku.name for sku in self._skus})
        number = {name: n for n, name in enumerate(names)}
        self._names, self._sku_of = names, [number[sku.name] for sku in self._skus]
        self._left = self._allowed_by_account(matching)
        self._launched = [0] * len(classes.demands)
        self._done = [w <= n for w, n in zip(classes.waits, self._matched, strict=True)]
        self.first_refusal: int | None = None

    def run(self) -> None:
        """Go through the unserved jobs until each class is served or blocked."""
        if not all(self._done):
            self._begin_batch()
            for piece in self._classes.by_age():
                if self._place_piece(piece):
                    break
            self._commit_batch()
        demands, result = self._classes.demands, self._placer.result
        result.launched.update({d: n for d, n in zip(demands, self._launched, strict=True) if n})

    def _place_piece(self, ages: Sequence[int]) -> bool:
        """Go through some jobs in order. Return True if no class is left."""
        at = self._place_batch(ages, 0)
        while at < len(ages):
            self._place_one(ages[at])
            if all(self._done):
                return True
            at = self._place_batch(ages, at + 1)
        return False

    def _allowed_by_account(self, matching: Matching) -> dict[str, int]:
        """Return by account how many machines to request now: 0 if it is better to wait for more."""
        wanted: Counter[str] = Counter()
        classes = self._classes
        for account, waits, skip in zip(classes.accounts, classes.waits, self._skip, strict=True):
            wanted[account] += waits - skip
        left = {}
        for account, count in wanted.items():
            allowed = self._budget.allowed(account, matching)
            worth = self._budget.worth_a_request(count, allowed)
            left[account] = allowed if worth else 0
        return left

    def _begin_batch(self) -> None:
        """Work out how many machines can be placed before any limit needs to be checked again."""
        placer, headroom = self._placer, self._placer.headroom
        self._current = [placer.current.get(name) for name in self._names]
        self._cost = [one.dollars if one is not None else 0.0 for one in self._current]
        self._ahead = [headroom.ahead(one) if one is not None else 0 for one in self._current]
        self._before, self._dollars = list(self._ahead), headroom.dollars
        self._most = headroom.ahead_of_all([one for one in self._current if one is not None])
        self._place_rest()

    def _rest(self) -> list[int]:
        """Return by class how many jobs have neither a machine nor a refusal."""
        counts = zip(self._done, self._classes.waits, self._matched, self._launched, strict=True)
        return [0 if done else waits - n - launched for done, waits, n, launched in counts]

    def _place_rest(self) -> None:
        """Place machines for all jobs that are left, in any order, if no limit can be reached."""
        wanted = {sku for sku, done in zip(self._sku_of, self._done, strict=True) if not done}
        if any(self._current[sku] is None for sku in wanted):
            return
        rest, counts, left = self._rest(), Counter[Placement](), Counter[str]()
        for number, count in enumerate(rest):
            placement = self._current[self._sku_of[number]]
            if count and placement is not None:
                counts[placement] += count
                left[self._classes.accounts[number]] += count
        if any(count > self._left[account] for account, count in left.items()):
            return
        if self._placer.headroom.takes_all(counts):
            self._done = [True] * len(rest)
            for number, count in enumerate(rest):
                self._launched[number] += count
                self._ahead[self._sku_of[number]] -= count
                self._dollars -= self._cost[self._sku_of[number]] * count

    def _place_batch(self, ages: Sequence[int], at: int) -> int:
        """Place machines while no limit can be reached. Return the index of the first job not handled."""
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

    def _commit_batch(self) -> None:
        """Take the machines of the batch out of the headroom."""
        if self._ahead == self._before:
            return
        ahead = zip(self._current, self._before, self._ahead, strict=True)
        counts = {one: was - now for one, was, now in ahead if one is not None and was > now}
        if counts:
            self._placer.headroom.take_together(counts, self._dollars)
            self._placer.result.placed.update(counts)
            self._placer.machines += sum(counts.values())
            self._before = list(self._ahead)

    def _place_one(self, number: int) -> None:
        """Place one machine for a class. If there is none, refuse all classes with the same reason."""
        account, sku = self._classes.accounts[number], self._skus[number]
        self._commit_batch()
        if self._left[account] <= 0:
            self._refuse([one == account for one in self._classes.accounts], (_REGISTRATION_RATE,))
        elif self._placer.place(sku):
            self._left[account] -= 1
            self._launched[number] += 1
            self._begin_batch()
        else:
            refused = self._sku_of[number]
            self._refuse([one == refused for one in self._sku_of], self._placer.reasons[sku.name])

    def _refuse(self, refused: list[bool], reasons: tuple[WaitReason, ...]) -> None:
        """Record why the jobs of some classes wait."""
        if self.first_refusal is None:
            self.first_refusal = self._placer.machines
        for number, left in enumerate(self._rest()):
            if left and refused[number]:
                self._placer.result.blocked[self._classes.demands[number]] = reasons
            self._done[number] = refused[number] or not left
