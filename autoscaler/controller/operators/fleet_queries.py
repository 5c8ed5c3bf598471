"""Answers operators' questions from the ledger, the last plan and the stored history."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from autoscaler.controller.journal import Journal
from autoscaler.controller.operators.recent_past import DAY, HOUR, RecentPast
from autoscaler.controller.ports.provider import Provider
from autoscaler.controller.ports.store import Store
from autoscaler.controller.reporting.fault_history import FaultHistory, recorded_faults
from autoscaler.controller.reporting.fleet_counts import fleet_counts
from autoscaler.ledger.jobs.job_waits import machine_of
from autoscaler.model import changes
from autoscaler.model.accounting import day_of
from autoscaler.model.changes import HistoryRow
from autoscaler.model.fleet import Fleet
from autoscaler.model.identifiers import Instant, JobId, ProviderName
from autoscaler.model.jobs.runners import machine_in_name
from autoscaler.model.machines.machine import Machine
from autoscaler.model.plan import Plan
from autoscaler.model.reasons.faults import Fault
from autoscaler.model.reasons.spells import FaultSpell
from autoscaler.model.wait_objectives import with_overdue
from autoscaler.views import grid, machines
from autoscaler.views.cost import CostView, Spent, cost
from autoscaler.views.faults.counts import Counts
from autoscaler.views.grid import Grid, RepositoryView
from autoscaler.views.jobs.explanation import (
    Explanation,
    explain_job,
)
from autoscaler.views.jobs.past import Past, past_of, waited_until
from autoscaler.views.jobs.waits import Reasons
from autoscaler.views.machines import MachineView
from autoscaler.views.overview import Overview, oldest_jobs
from autoscaler.views.spending import Spending, SpendingKey, spending
from autoscaler.views.status import StatusView, status

KINDS = ("job", "machine", "runner", "launch_request", "sku", "provider", "fleet", "installation")
"""Kinds of history (`HistoryRow.kind`) in which a name is looked up."""


_LONGEST_ID = 18
"""Maximum number of digits of a job's number: fewer than a 64-bit number has."""


class UnknownRecordError(Exception):
    """No record and no stored history has this name."""


class FleetQueries:
    """The questions of an operator. All but those about history answer from memory. None changes anything."""

    def __init__(
        self,
        journal: Journal,
        store: Store,
        providers: Mapping[ProviderName, Provider],
        last_plan: Callable[[], Plan],
        recent_past: RecentPast,
        fault_history: FaultHistory,
        observed: Callable[[], Sequence[Fault]],
        spent: Callable[[], Spent],
        image_name: Callable[[ProviderName, str], str],
    ) -> None:
        """`observed` returns the faults that only the metrics show, `spent` what was paid so far.

        `image_name` returns the name of a provider's image by its ID, or an empty text.
        """
        self._journal = journal
        self._store = store
        self._providers = providers
        self._last_plan = last_plan
        self._recent_past = recent_past
        self._fault_history = fault_history
        self._observed = observed
        self._spent = spent
        self._image_name = image_name

    def now(self) -> Instant:
        """Return the controller's time, by which the ages in an answer count."""
        return self._journal.now

    def fleet(self) -> Fleet:
        """Return the fleet as it is now, for the functions of `views/`."""
        return self._journal.fleet()

    @property
    def waiting(self) -> Reasons:
        """Why jobs wait, by class, as of the last plan."""
        return self._last_plan().waiting

    def status(self) -> StatusView:
        """Return the state of the fleet now. Why jobs wait is as of the last plan."""
        state = self._journal.ledger.state
        seen = fleet_counts(state, self._journal.now)
        observed = tuple(self._observed())
        counts = Counts(
            running=seen.jobs_in_progress,
            dollars_per_hour=seen.dollars_per_hour,
            unverified=seen.machines_unverified,
            not_terminating=seen.machines_not_terminating,
            foreign=seen.machines_foreign,
            providers_not_listed=tuple(
                sorted(set(self._providers) - state.machines_listed_at.keys())
            ),
            observed=observed,
            last_hour=self._recent_past.starts(HOUR),
            objectives=self._recent_past.objectives,
            mends=self._mends(),
            image_names=self._names_of(
                {fault.about for fault in observed}
                | {row.image for row in state.cooldowns.values()}
            ),
        )
        found = status(self.fleet(), self.waiting, counts)
        return replace(found, faults=self._fault_history.with_times(found.faults))

    def _names_of(self, images: Collection[str]) -> dict[str, str]:
        """Return the names of images by their IDs, as far as a provider knows them."""
        found = {
            image: next(filter(None, (self._image_name(one, image) for one in self._providers)), "")
            for image in images
        }
        return {image: name for image, name in found.items() if name}

    def _mends(self) -> dict[str, str]:
        """Return what an operator can do, by the codes of all providers' errors."""
        found: dict[str, str] = {}
        for provider in self._providers.values():
            found |= provider.capabilities.mends
        return found

    def overview(self) -> Overview:
        """Return the state of the fleet with the oldest job of each SKU, and its last hours."""
        past, seen = self._recent_past, self.status()
        late = {sku.sku: sku.overdue for sku in seen.skus if sku.overdue}
        return Overview(
            status=seen,
            oldest=oldest_jobs(self.fleet(), self.waiting),
            hour=seen.last_hour,
            day=with_overdue(past.starts(DAY), late, past.objectives),
            samples=past.samples(),
            since=past.since,
            objectives=past.objectives,
        )

    def machine(self, name: str) -> MachineView | None:
        """Return the machine with this ID, its provider's ID or the name of its runner."""
        fleet = self.fleet()
        known = machines.named(fleet, name)
        if known is None:
            return None
        (view,) = self.with_image_names([machines.view_of(fleet, known)])
        return view

    def with_image_names(self, found: Iterable[MachineView]) -> list[MachineView]:
        """Return machines with the names of their images, as far as they are known."""
        return [
            replace(one, image_name=self._image_name(ProviderName(one.provider), one.image))
            for one in found
        ]

    def explain(self, job: JobId) -> Explanation | None:
        """Return why a job waits, or what became of it; None if it is not in memory any more."""
        known = self._journal.ledger.state.jobs.get(job)
        if known is None:
            return None
        return explain_job(self.fleet(), self.waiting, known)

    def cost(self) -> CostView:
        """Return what the machines cost now, by SKU."""
        state = self._journal.ledger.state
        dollars = fleet_counts(state, self._journal.now).dollars_per_hour
        return cost(self.fleet(), dollars, self._spent())

    def repositories(self) -> Sequence[RepositoryView]:
        """Return the repositories of the jobs that are known, those with the most open jobs first."""
        return grid.repositories(self._recent_past.jobs())

    def grid(self, repository: str) -> Grid:
        """Return the newest commits of `owner/name` with their jobs. Empty if no job of it is known."""
        past = self._recent_past
        return grid.grid(repository, past.jobs(), past.commits)

    def changes(self) -> int:
        """Return a number that grows with each change of a record."""
        return self._recent_past.changes

    async def ended(self, job: JobId) -> Explanation | None:
        """Return what is known about a job from the store, or None if it is not kept any more.

        Raises: StoreError.
        """
        stored = await self._store.find_job(job)
        if stored is None:
            return None
        fleet = self.fleet()
        explained = explain_job(fleet, self.waiting, stored)
        view = explained.job
        if view is None or view.machine is not None or stored.runner_name is None:
            return explained
        machine = machine_in_name(fleet.catalogue, stored.runner_name)
        return replace(explained, job=replace(view, machine=machine))

    async def past(self, job: JobId) -> Past:
        """Return what a job waited for, and which launches failed meanwhile, as far as the history is kept.

        Raises: StoreError.
        """
        known = self._journal.ledger.state.jobs.get(job) or await self._store.find_job(job)
        if known is None or known.demand is None:
            return Past()
        now = self._journal.now
        until = waited_until(known, now)
        own: list[HistoryRow] = []
        for kind, record in await self._records(str(job)):
            own += await self._store.history(kind, record)
        of_class = await self._store.history("demand", known.demand.text, until=until)
        failed: list[HistoryRow] = []
        for sku in known.demand.skus:
            failed += await self._store.history(changes.FAILED_LAUNCH, sku, until=until)
        return past_of(known, own, of_class, failed, now)

    async def faults(self) -> Sequence[FaultSpell]:
        """Return the faults of the last 30 days, those that began last first. Raises: StoreError."""
        return await recorded_faults(self._store)

    async def spending(self, days: int, by: Collection[SpendingKey]) -> Spending:
        """Return what machines cost in the last days, today included. Raises: StoreError."""
        since = day_of(self._journal.now) - days + 1
        return spending(await self._store.usage(since), since, by)

    async def history(self, name: str) -> Sequence[HistoryRow]:
        """Return what happened to a record, oldest first.

        `name` is a job's number, a machine's ID, its ID at its provider, or the name of a runner, launch
        request or SKU. The history of a job or a machine includes its machine, runner and launch request.
        Raises: UnknownRecordError, StoreError.
        """
        found: list[HistoryRow] = []
        for kind, record in await self._records(name):
            found += await self._store.history(kind, record)
        if not found:
            raise UnknownRecordError(name)
        return sorted(found, key=lambda row: row.at)

    async def _records(self, name: str) -> list[tuple[str, str]]:
        """Return the records whose history belongs to this name."""
        state = self._journal.ledger.state
        number = _number(name)
        job = state.jobs.get(number) if number is not None else None
        if job is not None:
            found = machine_of(state, job)
            return [("job", name), *(_records_of(found[1]) if found is not None else ())]
        machine = machines.named(self.fleet(), name)
        if machine is not None:
            return _records_of(machine)
        return [*[(kind, name) for kind in KINDS], *await self._records_of_ended(name)]

    async def _records_of_ended(self, name: str) -> list[tuple[str, str]]:
        """Return the runner and the machine of a job that is in the store only."""
        number = _number(name)
        ended = await self.ended(number) if number is not None else None
        if ended is None or ended.job is None:
            return []
        found = (("machine", ended.job.machine), ("runner", ended.job.runner))
        return [(kind, record) for kind, record in found if record is not None]


def _number(name: str) -> JobId | None:
    digits = name.isascii() and name.isdigit() and len(name) <= _LONGEST_ID
    return JobId(int(name)) if digits else None


def _records_of(machine: Machine) -> list[tuple[str, str]]:
    records = [("launch_request", str(machine.launch_request)), ("machine", str(machine.id))]
    if machine.work.runner is not None:
        records.append(("runner", str(machine.work.runner)))
    return records
