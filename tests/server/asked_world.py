"""Answers operators' questions about a world of the ledger's tests."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from autoscaler.controller.ports.fleet_queries import UnknownRecordError
from autoscaler.controller.ports.store import StoreError
from autoscaler.model.changes import HistoryRow
from autoscaler.model.identifiers import JobId, SkuName
from autoscaler.model.machines import MachineState
from autoscaler.views import jobs, machines
from autoscaler.views.explanation import Explanation, explain_job, explain_labels
from autoscaler.views.status import Counts, StatusView, status
from tests.ledger.builders import World


@dataclass
class AskedWorld:
    """Answers about a world of the ledger's tests, with a history that the test gives."""

    world: World
    rows: dict[str, list[HistoryRow]] = field(default_factory=dict)
    broken: bool = False

    def status(self) -> StatusView:
        counts = Counts(running={}, oldest={}, dollars_per_hour=2.5)
        return status(self.world.fleet(), self.world.plan().waiting, counts)

    def knows_sku(self, sku: SkuName) -> bool:
        return machines.knows_sku(self.world.fleet(), sku)

    def waiting_jobs(self, sku: SkuName | None, limit: int) -> Sequence[jobs.JobView]:
        return jobs.waiting_jobs(self.world.fleet(), self.world.plan().waiting, sku, limit)

    def running_jobs(self, sku: SkuName | None, limit: int) -> Sequence[jobs.JobView]:
        return jobs.running_jobs(self.world.fleet(), self.world.plan().waiting, sku, limit)

    def machines(
        self, sku: SkuName | None, state: MachineState | None, limit: int
    ) -> Sequence[machines.MachineView]:
        return machines.machines(self.world.fleet(), sku, state, limit)

    def explain(self, job: JobId) -> Explanation | None:
        known = self.world.state.jobs.get(job)
        if known is None:
            return None
        return explain_job(self.world.fleet(), self.world.plan().waiting, known)

    def explain_labels(self, repository: str, labels: Sequence[str]) -> Explanation:
        return explain_labels(self.world.fleet(), repository, labels)

    async def history(self, name: str) -> Sequence[HistoryRow]:
        if self.broken:
            raise StoreError("the disk is full")
        if name not in self.rows:
            raise UnknownRecordError(name)
        return self.rows[name]
