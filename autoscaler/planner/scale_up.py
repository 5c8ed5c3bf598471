"""Plans launches: machines for every unserved job, oldest first, then for the ready minimums.

No launch exceeds a limit. If a limit leaves too little for all, the oldest jobs get machines first.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress

from autoscaler.model.catalogue import Catalogue, Sku
from autoscaler.model.fleet import Fleet
from autoscaler.model.identifiers import Instant, SkuName
from autoscaler.model.jobs.demand import DemandClass
from autoscaler.model.plan import Launch
from autoscaler.model.waiting import WaitCode, WaitReason
from autoscaler.model.wording import counted
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

    `for_minimums` has those of `placed` that ready minimums miss. `overtaken`: a machine was placed although an
    older job got none.
    """

    placed: Counter[Placement] = field(default_factory=Counter)
    for_minimums: Counter[Placement] = field(default_factory=Counter)
    launched: Counter[DemandClass] = field(default_factory=Counter)
    blocked: dict[DemandClass, tuple[WaitReason, ...]] = field(default_factory=dict)
    overtaken: bool = False

    def launches(self, catalogue: Catalogue) -> list[Launch]:
        """Return the launch requests to make, none larger than its provider accepts."""
        requests = []
        for placement, count in self.placed.items():
            largest = catalogue.largest_request(placement.provider)
            keys = tuple(offering.key for offering in placement.offerings)
            jobs = count - self.for_minimums[placement]
            while count > 0:
                size = min(count, largest)
                of_jobs = min(size, jobs)
                requests.append(
                    Launch(
                        placement.sku,
                        placement.provider,
                        placement.option,
                        placement.capacity_type,
                        keys,
                        size,
                        _reason(of_jobs, size - of_jobs),
                    )
                )
                count, jobs = count - size, jobs - of_jobs
        return requests


def _reason(jobs: int, minimum: int) -> str:
    if not jobs:
        return "for the ready minimum"
    ready = f" and {counted(minimum, 'machine')} of the ready minimum" if minimum else ""
    return f"for {counted(jobs, 'waiting job')}{ready}"


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

    def find(self, sku: Sku) -> Placement | None:
        """Return where one more machine of a SKU can be placed, or None. `reasons` then says why."""
        placement = self.current.get(sku.name)
        if placement is not None and self.headroom.takes(placement):
            return placement
        if self._refused_at.get(sku.name) == self.machines:
            return None
        search = Search(self.fleet, self.headroom, sku)
        placement = search.place()
        if placement is None:
            self.reasons[sku.name] = tuple(search.reasons)
            self._refused_at[sku.name] = self.machines
        else:
            self.current[sku.name] = placement
        return placement

    def place(self, sku: Sku) -> Placement | None:
        """Place one more machine of a SKU, if one of its launch options has headroom. Return where."""
        placement = self.find(sku)
        if placement is not None:
            self.headroom.take(placement)
            self._count(placement, 1)
        return placement

    def place_together(self, counts: Mapping[Placement, int], dollars: float) -> None:
        """Place machines that no limit refuses. `dollars` an hour are left afterwards."""
        self.headroom.take_together(counts, dollars)
        for placement, count in counts.items():
            self._count(placement, count)

    def _count(self, placement: Placement, count: int) -> None:
        self.result.placed[placement] += count
        self.machines += count

    def place_several(self, sku: Sku, missing: int) -> int:
        """Place up to `missing` machines of a SKU, as far as there is headroom. Return how many."""
        before = self.machines
        while missing > 0 and (placement := self.place(sku)) is not None:
            ahead = min(self.headroom.ahead(placement), self.headroom.ahead_of_all((placement,)))
            more = min(missing - 1, ahead)
            self.headroom.take(placement, more)
            self._count(placement, more)
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
    for name, count in jobs.takers(minimums).items():
        placer.place_several(fleet.catalogue.skus[name], count)
    for_jobs = result.placed.copy()
    for name, missing in minimums.items():
        count = placer.place_several(fleet.catalogue.skus[name], missing)
        if count:
            result.launched[ready_minimum_class(name)] = count
    result.for_minimums = result.placed - for_jobs
    result.overtaken = jobs.first_refusal is not None and placer.machines > jobs.first_refusal
    return result


class _JobPlacer:
    """Places a machine for each unserved job: all together if no limit is near, otherwise oldest first.

    `first_refusal` is the number of machines that were placed when the first job got none.
    """

    def __init__(
        self, classes: Classes, matching: Matching, budget: RegistrationBudget, placer: _Placer
    ) -> None:
        self._classes, self._budget, self._placer = classes, budget, placer
        self._skip = [matching.matched[demand] for demand in classes.demands]
        self._wanted = [n - skip for n, skip in zip(classes.waits, self._skip, strict=True)]
        # Jobs by class that have neither a machine nor a refusal, and those that were refused.
        self._rest = list(self._wanted)
        self._refused = [0] * len(classes.demands)
        self._allowed = {account: budget.allowed(account, matching) for account in classes.accounts}
        self._left = self._allowed_by_account()
        names = sorted({demand.skus[0] for demand in classes.demands})
        number = {name: n for n, name in enumerate(names)}
        self._skus = [placer.fleet.catalogue.skus[name] for name in names]
        self._sku_of = [number[demand.skus[0]] for demand in classes.demands]
        # By SKU: its placement, the price, and how many machines need no further check of its limits.
        self._current: list[Placement | None] = [None] * len(names)
        self._cost = [0.0] * len(names)
        self._ahead = [0] * len(names)
        self._before = [0] * len(names)
        self._most, self._dollars = 0, placer.headroom.dollars
        self.first_refusal: int | None = None

    def run(self) -> None:
        """Go through the unserved jobs until each has a machine or is refused."""
        self._place_rest()
        if any(self._rest):
            for piece in self._classes.by_age():
                self._place_piece(piece)
                if not any(self._rest):
                    break
            self._commit_batch()
        counts = zip(self._classes.demands, self._wanted, self._refused, strict=True)
        self._placer.result.launched.update(
            {demand: wanted - refused for demand, wanted, refused in counts if wanted > refused}
        )

    def takers(self, minimums: Mapping[SkuName, int]) -> Counter[SkuName]:
        """Return by SKU how many refused jobs will take the machines that its ready minimum misses.

        Each of them would leave the minimum one machine short again.
        """
        skus, found, left = (
            self._placer.fleet.catalogue.skus,
            Counter[SkuName](),
            self._allowed.copy(),
        )
        counts = list(zip(self._classes.accounts, self._wanted, self._refused, strict=True))
        for account, wanted, refused in counts:
            left[account] -= wanted - refused
        for demand, (account, _, refused) in zip(self._classes.demands, counts, strict=True):
            count = min(refused, left[account])
            short = (skus[one] for one in demand.skus if minimums.get(one, 0) > 0)
            sku = next(filter(self._placer.find, short), None) if count > 0 else None
            if sku is not None:
                found[sku.name] += count
                left[account] -= count
        return found

    def _place_rest(self) -> None:
        """Place machines for all jobs that are left, if no limit can be reached."""
        placer, rest, placements = self._placer, self._rest, dict[int, Placement]()
        if sum(rest) > placer.headroom.machines:
            return
        accounts = Counter[str]()
        for account, count in zip(self._classes.accounts, rest, strict=True):
            accounts[account] += count
        if any(count > self._left[account] for account, count in accounts.items()):
            return
        for number in {sku for sku, count in zip(self._sku_of, rest, strict=True) if count}:
            placement = placer.find(self._skus[number])
            if placement is None:
                return
            placements[number] = placement
        counts, dollars = Counter[Placement](), placer.headroom.dollars
        for number in sorted((n for n, count in enumerate(rest) if count), key=self._queued_at):
            placement = placements[self._sku_of[number]]
            counts[placement] += rest[number]
            dollars -= placement.dollars * rest[number]
        if placer.headroom.takes_all(counts):
            placer.place_together(counts, dollars)
            self._rest = [0] * len(rest)

    def _queued_at(self, number: int) -> Instant:
        """Return when the oldest job of a class was queued that has neither a machine nor a refusal."""
        queue = self._placer.fleet.queues[self._classes.demands[number]].keys()
        return queue[self._classes.waits[number] - self._rest[number]][0]

    def _place_piece(self, ages: Sequence[int]) -> None:
        """Go through some jobs in order."""
        at = self._place_batch(ages, 0)
        while at < len(ages):
            self._place_one(ages[at])
            if not any(self._rest):
                break
            at = self._place_batch(ages, at + 1)

    def _allowed_by_account(self) -> dict[str, int]:
        """Return by account how many machines to request now: 0 if it is better to wait for more."""
        wanted: Counter[str] = Counter()
        for account, count in zip(self._classes.accounts, self._wanted, strict=True):
            wanted[account] += count
        left = {}
        for account, count in wanted.items():
            allowed = self._allowed[account]
            worth = self._budget.worth_a_request(count, allowed)
            left[account] = allowed if worth else 0
        return left

    def _begin_batch(self, sku: int, placement: Placement) -> None:
        """Work out how many machines can be placed, now that a SKU has another one."""
        headroom, self._current[sku] = self._placer.headroom, placement
        self._cost[sku] = placement.dollars
        self._ahead[sku] = self._before[sku] = headroom.ahead(placement)
        self._dollars = headroom.dollars
        self._most = headroom.ahead_of_all([one for one in self._current if one is not None])

    def _place_batch(self, ages: Sequence[int], at: int) -> int:
        """Place machines while no limit can be reached. Return the index of the first job not handled."""
        sku_of, accounts, left = self._sku_of, self._classes.accounts, self._left
        rest, skip, ahead = self._rest, self._skip, self._ahead
        most, dollars, cost = self._most, self._dollars, self._cost
        for at in range(at, len(ages)):  # noqa: B020
            number = ages[at]
            if skip[number]:
                skip[number] -= 1
            elif rest[number]:
                sku, account = sku_of[number], accounts[number]
                if not (most > 0 and ahead[sku] and left[account] > 0):
                    break
                ahead[sku] -= 1
                left[account] -= 1
                most -= 1
                rest[number] -= 1
                dollars -= cost[sku]
        else:
            at = len(ages)
        self._most, self._dollars = most, dollars
        return at

    def _commit_batch(self) -> None:
        """Take the machines of the batch out of the headroom."""
        ahead = zip(self._current, self._before, self._ahead, strict=True)
        counts = {one: was - now for one, was, now in ahead if one is not None and was > now}
        if counts:
            self._placer.place_together(counts, self._dollars)
            self._before = list(self._ahead)

    def _place_one(self, number: int) -> None:
        """Place one machine for a class. If there is none, refuse all classes with the same reason."""
        account, sku = self._classes.accounts[number], self._sku_of[number]
        self._commit_batch()
        if self._left[account] <= 0:
            self._refuse([one == account for one in self._classes.accounts], (_REGISTRATION_RATE,))
        elif (placement := self._placer.place(self._skus[sku])) is not None:
            self._left[account] -= 1
            self._rest[number] -= 1
            self._begin_batch(sku, placement)
        else:
            reasons = self._placer.reasons[self._skus[sku].name]
            self._refuse([one == sku for one in self._sku_of], reasons)

    def _refuse(self, refused: list[bool], reasons: tuple[WaitReason, ...]) -> None:
        """Record why the jobs of some classes wait. The other jobs may have no limit near."""
        if self.first_refusal is None:
            self.first_refusal = self._placer.machines
        for number in compress(range(len(refused)), refused):
            if self._rest[number]:
                self._placer.result.blocked[self._classes.demands[number]] = reasons
                self._refused[number], self._rest[number] = self._rest[number], 0
        self._place_rest()
