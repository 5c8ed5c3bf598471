"""Plans launches: machines for every unserved job, oldest first, then for the ready minimums.

No launch exceeds a limit. If a limit leaves too little for all, the oldest jobs get machines first.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from autoscaler.model.catalogue import Catalogue, Sku
from autoscaler.model.fleet import Fleet
from autoscaler.model.identifiers import Instant, SkuName
from autoscaler.model.jobs.demand import DemandClass
from autoscaler.model.plan import Launch
from autoscaler.model.reasons.table import WaitCode
from autoscaler.model.reasons.waiting import WaitReason
from autoscaler.model.wording import counted
from autoscaler.planner.matching.classes import Classes
from autoscaler.planner.matching.maximum import Matching, ready_minimum_class
from autoscaler.planner.placement import Headroom, Placement
from autoscaler.planner.registration import RegistrationBudget
from autoscaler.planner.search import Search

_REGISTRATION_RATE = WaitReason(WaitCode.REGISTRATION_RATE)


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

    def place(self, sku: Sku) -> bool:
        """Place one more machine of a SKU, if one of its launch options has headroom."""
        placement = self.find(sku)
        if placement is not None:
            self._take(placement, 1)
        return placement is not None

    def place_together(self, counts: Mapping[SkuName, int]) -> bool:
        """Place machines where one more of each SKU can be placed, if no limit can be reached on the way."""
        if sum(counts.values()) > self.headroom.machines:
            return False
        placements = dict[Placement, int]()
        for name, count in counts.items():
            placement = self.find(self.fleet.catalogue.skus[name])
            if placement is None:
                return False
            placements[placement] = count
        if not self.headroom.takes_all(placements):
            return False
        for placement, count in placements.items():
            self._take(placement, count)
        return True

    def place_several(self, sku: Sku, missing: int) -> int:
        """Place up to `missing` machines of a SKU, as far as there is headroom. Return how many."""
        placed, batch = 0, missing
        while placed < missing:
            if self.place(sku) if batch == 1 else self.place_together({sku.name: batch}):
                placed += batch
                batch = min(2 * batch, missing - placed)
            elif batch > 1:
                batch //= 2
            else:
                break
        return placed

    def _take(self, placement: Placement, count: int) -> None:
        self.headroom.take(placement, count)
        self.result.placed[placement] += count
        self.machines += count


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
    """Places a machine for each unserved job, oldest first, in batches that are as large as possible.

    A batch is a run of jobs that can all get machines without reaching a limit. The first one has a single
    job, each later one twice as many, until one reaches a limit: then batches begin with a single job again. A
    single job gets a machine, or all jobs with the same reason are refused.

    `first_refusal` is the number of machines that were placed when the first job got none.
    """

    def __init__(
        self, classes: Classes, matching: Matching, budget: RegistrationBudget, placer: _Placer
    ) -> None:
        self._classes, self._placer = classes, placer
        self._sku_of = [demand.skus[0] for demand in classes.demands]
        self._matched = [matching.matched[demand] for demand in classes.demands]
        self._wanted = [n - done for n, done in zip(classes.waits, self._matched, strict=True)]
        # By class: jobs that have neither a machine nor a refusal, and jobs that were refused.
        self._waiting = list(self._wanted)
        self._refused = [0] * len(classes.demands)
        # By account: machines that may register soon, and those to request now: 0 to wait for more of them.
        self._allowed = {account: budget.allowed(account, matching) for account in classes.accounts}
        wanted = _by_account(classes, self._wanted)
        self._left = {
            account: allowed if budget.worth_a_request(wanted[account], allowed) else 0
            for account, allowed in self._allowed.items()
        }
        self._batch = 1
        self.first_refusal: int | None = None

    def run(self) -> None:
        """Go through the unserved jobs until each has a machine or is refused."""
        if not self._place_all():
            matched = list(self._matched)
            for piece in self._classes.by_age():
                self._place_oldest(piece, matched)
                if not any(self._waiting):
                    break
        counts = zip(self._classes.demands, self._wanted, self._refused, strict=True)
        self._placer.result.launched.update(
            {demand: wanted - refused for demand, wanted, refused in counts if wanted > refused}
        )

    def takers(self, minimums: Mapping[SkuName, int]) -> Counter[SkuName]:
        """Return by SKU how many refused jobs will take the machines that its ready minimum misses.

        Each of them would leave the minimum one machine short again.
        """
        skus, found = self._placer.fleet.catalogue.skus, Counter[SkuName]()
        served = [n - refused for n, refused in zip(self._wanted, self._refused, strict=True)]
        left = Counter(self._allowed)
        left.subtract(_by_account(self._classes, served))
        for number, demand in enumerate(self._classes.demands):
            account = self._classes.accounts[number]
            count = min(self._refused[number], left[account])
            short = (skus[one] for one in demand.skus if minimums.get(one, 0) > 0)
            sku = next(filter(self._placer.find, short), None) if count > 0 else None
            if sku is not None:
                found[sku.name] += count
                left[account] -= count
        return found

    def _place_all(self) -> bool:
        """Place machines for all jobs that wait, if no limit can be reached."""
        if sum(self._waiting) > self._placer.headroom.machines:
            return False
        if not self._may_register(_by_account(self._classes, self._waiting)):
            return False
        waiting = sorted((n for n, count in enumerate(self._waiting) if count), key=self._queued_at)
        return self._place_batch({number: self._waiting[number] for number in waiting})

    def _queued_at(self, number: int) -> Instant:
        """Return when the oldest waiting job of a class was queued."""
        queue = self._placer.fleet.queues[self._classes.demands[number]].keys()
        return queue[self._classes.waits[number] - self._waiting[number]][0]

    def _place_oldest(self, ages: Sequence[int], matched: list[int]) -> None:
        """Go through some jobs in order. `matched` are the jobs by class that are yet to be skipped."""
        jobs = []
        for number in ages:
            if matched[number]:
                matched[number] -= 1
            elif self._waiting[number]:
                jobs.append(number)
        while jobs:
            size = min(self._batch, len(jobs))
            if self._place_one(jobs[0]) if size == 1 else self._place_batch(Counter(jobs[:size])):
                jobs, self._batch = jobs[size:], 2 * size
            elif size > 1:
                self._batch = 1
            elif self._place_all():
                return
            else:
                jobs = [number for number in jobs if self._waiting[number]]

    def _place_batch(self, counts: Mapping[int, int]) -> bool:
        """Place machines for jobs by class, the first one's class first, if no limit can be reached."""
        by_sku, by_account = Counter[SkuName](), Counter[str]()
        for number, count in counts.items():
            by_sku[self._sku_of[number]] += count
            by_account[self._classes.accounts[number]] += count
        if not self._may_register(by_account) or not self._placer.place_together(by_sku):
            return False
        for number, count in counts.items():
            self._waiting[number] -= count
        for account, count in by_account.items():
            self._left[account] -= count
        return True

    def _may_register(self, by_account: Mapping[str, int]) -> bool:
        return all(count <= self._left[account] for account, count in by_account.items())

    def _place_one(self, number: int) -> bool:
        """Place a machine for a job. If there is none, refuse all jobs with the same reason."""
        account, sku = self._classes.accounts[number], self._sku_of[number]
        if self._left[account] <= 0:
            self._refuse(self._classes.accounts, account, (_REGISTRATION_RATE,))
            return False
        if not self._placer.place(self._placer.fleet.catalogue.skus[sku]):
            self._refuse(self._sku_of, sku, self._placer.reasons[sku])
            return False
        self._left[account] -= 1
        self._waiting[number] -= 1
        return True

    def _refuse(self, of_class: Sequence[str], value: str, reasons: tuple[WaitReason, ...]) -> None:
        """Record why jobs of the classes with this account or SKU wait."""
        if self.first_refusal is None:
            self.first_refusal = self._placer.machines
        for number, one in enumerate(of_class):
            if one == value and self._waiting[number]:
                self._placer.result.blocked[self._classes.demands[number]] = reasons
                self._refused[number], self._waiting[number] = self._waiting[number], 0


def _by_account(classes: Classes, counts: Iterable[int]) -> Counter[str]:
    """Return the sum of counts by class for each account."""
    found = Counter[str]()
    for account, count in zip(classes.accounts, counts, strict=True):
        found[account] += count
    return found
