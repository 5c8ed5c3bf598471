"""Answers operators' questions about a world of the ledger's tests."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from autoscaler.controller.operators.fleet_queries import FleetQueries, UnknownRecordError
from autoscaler.controller.ports.store import StoreError
from autoscaler.model.accounting import Usage, day_of
from autoscaler.model.changes import HistoryRow
from autoscaler.model.fleet import Fleet
from autoscaler.model.identifiers import Instant, JobId
from autoscaler.model.reasons.faults import Fault
from autoscaler.model.reasons.spells import FaultSpell
from autoscaler.model.wait_objectives import DEFAULT_OBJECTIVES, Starts, WaitObjective
from autoscaler.views import grid
from autoscaler.views.cost import CostView, Spent, cost
from autoscaler.views.faults.counts import Counts
from autoscaler.views.jobs.explanation import (
    Explanation,
    explain_job,
)
from autoscaler.views.jobs.past import Past
from autoscaler.views.jobs.waits import Reasons
from autoscaler.views.machines import MachineView, named, view_of
from autoscaler.views.overview import Overview, Sample, oldest_jobs
from autoscaler.views.spending import Spending, SpendingKey, spending
from autoscaler.views.status import StatusView, status
from tests.ledger.builders import World


@dataclass
class AskedWorld(FleetQueries):
    """Answers about a world of the ledger's tests, with a history and starts that the test gives."""

    world: World
    rows: dict[str, list[HistoryRow]] = field(default_factory=dict)
    stored: dict[int, Explanation] = field(default_factory=dict)
    pasts: dict[int, Past] = field(default_factory=dict)
    objectives: tuple[WaitObjective, ...] = DEFAULT_OBJECTIVES
    hour: dict[str, Starts] = field(default_factory=dict)
    samples: tuple[Sample, ...] = ()
    observed: tuple[Fault, ...] = ()
    commits: dict[int, grid.Commit] = field(default_factory=dict)
    spent: Spent = field(default_factory=dict)
    changed: int = 0
    broken: bool = False
    spells: Sequence[FaultSpell] = ()
    used: Sequence[Usage] = ()
    image_names: Mapping[str, str] = field(default_factory=dict)

    def now(self) -> Instant:
        return self.world.now

    def fleet(self) -> Fleet:
        return self.world.fleet()

    @property
    def waiting(self) -> Reasons:
        return self.world.plan().waiting

    def status(self) -> StatusView:
        state = self.world.state
        counts = Counts(
            running=state.in_progress,
            dollars_per_hour=2.5,
            unverified=state.unverified,
            observed=self.observed,
            last_hour=self.hour,
            objectives=self.objectives,
        )
        return status(self.world.fleet(), self.world.plan().waiting, counts)

    def overview(self) -> Overview:
        now = Sample(self.world.now, *(0, 0, 0, 0, 0))
        seen = self.status()
        return Overview(
            seen,
            oldest_jobs(self.world.fleet(), self.world.plan().waiting),
            seen.last_hour,
            self.hour,
            self.samples or (now,),
            self.world.now - 600.0,
            self.objectives,
        )

    def explain(self, job: JobId) -> Explanation | None:
        known = self.world.state.jobs.get(job)
        if known is None:
            return None
        return explain_job(self.world.fleet(), self.world.plan().waiting, known)

    def cost(self) -> CostView:
        return cost(self.world.fleet(), 2.5, self.spent)

    def repositories(self) -> Sequence[grid.RepositoryView]:
        return grid.repositories(self.world.state.jobs.values())

    def grid(self, repository: str) -> grid.Grid:
        return grid.grid(repository, self.world.state.jobs.values(), self.commits)

    def machine(self, name: str) -> MachineView | None:
        known = named(self.world.fleet(), name)
        views = [view_of(self.world.fleet(), known)] if known is not None else []
        return next(iter(self.with_image_names(views)), None)

    def with_image_names(self, found: Iterable[MachineView]) -> list[MachineView]:
        return [replace(one, image_name=self.image_names.get(one.image, "")) for one in found]

    def changes(self) -> int:
        return self.changed

    async def ended(self, job: JobId) -> Explanation | None:
        if self.broken:
            raise StoreError("the disk is full")
        return self.stored.get(job)

    async def past(self, job: JobId) -> Past:
        if self.broken:
            raise StoreError("the disk is full")
        return self.pasts.get(job, Past())

    async def faults(self) -> Sequence[FaultSpell]:
        if self.broken:
            raise StoreError("the disk is full")
        return self.spells

    async def spending(self, days: int, by: Collection[SpendingKey]) -> Spending:
        if self.broken:
            raise StoreError("the disk is full")
        since = day_of(self.world.now) - days + 1
        return spending([one for one in self.used if one.day >= since], since, by)

    async def history(self, name: str) -> Sequence[HistoryRow]:
        if self.broken:
            raise StoreError("the disk is full")
        if name not in self.rows:
            raise UnknownRecordError(name)
        return self.rows[name]
