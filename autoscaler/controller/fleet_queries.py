"""Answers operators' questions from the ledger, the last plan and the stored history."""

from collections.abc import Callable, Collection, Sequence

from autoscaler.controller.journal import Journal
from autoscaler.controller.ports.fleet_queries import UnknownRecordError
from autoscaler.controller.ports.store import Store
from autoscaler.controller.signals import fleet_counts
from autoscaler.ledger.state import LedgerState
from autoscaler.model.changes import HistoryRow
from autoscaler.model.identifiers import JobId, ProviderName, RunnerName, SkuName
from autoscaler.model.machines import Machine, MachineState
from autoscaler.model.plan import Plan
from autoscaler.views import jobs, machines
from autoscaler.views.explanation import Explanation, explain_job, explain_labels
from autoscaler.views.jobs import JobView
from autoscaler.views.machines import MachineView
from autoscaler.views.status import Counts, StatusView, status

KINDS = ("job", "machine", "runner", "launch_request", "sku", "provider", "fleet", "installation")
"""Kinds of history (`HistoryRow.kind`) in which a name is looked up."""


class FleetAnswers:
    """Implements the FleetQueries port."""

    def __init__(
        self,
        journal: Journal,
        store: Store,
        providers: Collection[ProviderName],
        last_plan: Callable[[], Plan],
    ) -> None:
        self._journal = journal
        self._store = store
        self._providers = providers
        self._last_plan = last_plan

    def status(self) -> StatusView:
        """See `FleetQueries.status`."""
        state = self._journal.ledger.state
        seen = fleet_counts(state, self._journal.now)
        counts = Counts(
            running=seen.jobs_in_progress,
            oldest=seen.oldest_waiting,
            dollars_per_hour=seen.dollars_per_hour,
            unverified=seen.machines_unverified,
            not_terminating=seen.machines_not_terminating,
            foreign=seen.machines_foreign,
            unlisted=tuple(sorted(set(self._providers) - state.machines_listed_at.keys())),
        )
        return status(self._journal.fleet(), self._last_plan().waiting, counts)

    def knows_sku(self, sku: SkuName) -> bool:
        """See `FleetQueries.knows_sku`."""
        return machines.knows_sku(self._journal.fleet(), sku)

    def waiting_jobs(self, sku: SkuName | None, limit: int) -> Sequence[JobView]:
        """See `FleetQueries.waiting_jobs`."""
        return jobs.waiting_jobs(self._journal.fleet(), self._last_plan().waiting, sku, limit)

    def running_jobs(self, sku: SkuName | None, limit: int) -> Sequence[JobView]:
        """See `FleetQueries.running_jobs`."""
        return jobs.running_jobs(self._journal.fleet(), self._last_plan().waiting, sku, limit)

    def machines(
        self, sku: SkuName | None, state: MachineState | None, limit: int
    ) -> Sequence[MachineView]:
        """See `FleetQueries.machines`."""
        return machines.machines(self._journal.fleet(), sku, state, limit)

    def explain(self, job: JobId) -> Explanation | None:
        """See `FleetQueries.explain`."""
        known = self._journal.ledger.state.jobs.get(job)
        if known is None:
            return None
        return explain_job(self._journal.fleet(), self._last_plan().waiting, known)

    def explain_labels(self, repository: str, labels: Sequence[str]) -> Explanation:
        """See `FleetQueries.explain_labels`."""
        return explain_labels(self._journal.fleet(), repository, labels)

    async def history(self, name: str) -> Sequence[HistoryRow]:
        """See `FleetQueries.history`."""
        found: list[HistoryRow] = []
        for kind, record in self._records(name):
            found += await self._store.history(kind, record)
        if not found:
            raise UnknownRecordError(name)
        return sorted(found, key=lambda row: row.at)

    def _records(self, name: str) -> list[tuple[str, str]]:
        """Return the records whose history belongs to this name."""
        state = self._journal.ledger.state
        job = state.jobs.get(JobId(int(name))) if name.isascii() and name.isdigit() else None
        if job is not None:
            machine = _machine_of(state, job.runner_name)
            return [("job", name), *_records_of(machine)]
        machine = machines.named(self._journal.fleet(), name)
        return _records_of(machine) if machine is not None else [(kind, name) for kind in KINDS]


def _machine_of(state: LedgerState, name: RunnerName | None) -> Machine | None:
    runner = state.runners.get(name) if name is not None else None
    return state.machines.get(runner.machine) if runner is not None else None


def _records_of(machine: Machine | None) -> list[tuple[str, str]]:
    if machine is None:
        return []
    records = [("launch_request", str(machine.launch_request)), ("machine", str(machine.id))]
    if machine.work.runner is not None:
        records.append(("runner", str(machine.work.runner)))
    return records
