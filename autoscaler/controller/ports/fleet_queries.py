"""What operators can ask about the fleet. Nothing here changes it."""

from collections.abc import Sequence
from typing import Protocol

from autoscaler.model.changes import HistoryRow
from autoscaler.model.identifiers import Instant, JobId, SkuName
from autoscaler.model.machines.machine import MachineState
from autoscaler.views.cost import CostView
from autoscaler.views.explanation import Explanation
from autoscaler.views.grid import Grid, RepositoryView
from autoscaler.views.jobs import JobView
from autoscaler.views.machines import MachineView
from autoscaler.views.offerings import OptionView
from autoscaler.views.overview import Overview
from autoscaler.views.past import Past
from autoscaler.views.status import StatusView


class UnknownRecordError(Exception):
    """No record and no stored history has this name."""


class FleetQueries(Protocol):
    """The questions of an operator. All but those about history answer from memory."""

    def now(self) -> Instant:
        """Return the controller's time, by which the ages in an answer count."""

    def status(self) -> StatusView:
        """Return the state of the fleet as of the last plan."""

    def knows_sku(self, sku: SkuName) -> bool:
        """Return whether fleet.yaml has this SKU, or a record of a machine of it is still kept."""

    def overview(self) -> Overview:
        """Return the state of the fleet with the oldest job of each SKU, and its last hours."""

    def waiting_jobs(self, sku: SkuName | None, limit: int) -> Sequence[JobView]:
        """Return the oldest jobs that wait for a machine."""

    def unmatched_jobs(self, limit: int) -> Sequence[JobView]:
        """Return the oldest queued jobs that no SKU serves."""

    def running_jobs(self, sku: SkuName | None, limit: int) -> Sequence[JobView]:
        """Return jobs in progress."""

    def machines(
        self, sku: SkuName | None, state: MachineState | None, limit: int
    ) -> Sequence[MachineView]:
        """Return machines; without a state, all that exist or may exist."""

    def machine(self, name: str) -> MachineView | None:
        """Return the machine with this ID, its provider's ID or the name of its runner."""

    def offerings(self, sku: SkuName) -> Sequence[OptionView]:
        """Return the offerings of a SKU, each with why it is not used now. Empty if no SKU has this name."""

    def explain(self, job: JobId) -> Explanation | None:
        """Return why a job waits, or what became of it; None if it is not in memory any more."""

    def explain_labels(self, repository: str | None, labels: Sequence[str]) -> Explanation:
        """Return which SKUs serve jobs of `owner/name`, or of any repository, with these labels."""

    def cost(self) -> CostView:
        """Return what the machines cost now, by SKU."""

    def repositories(self) -> Sequence[RepositoryView]:
        """Return the repositories of the jobs that are known, those with the most open jobs first."""

    def grid(self, repository: str) -> Grid:
        """Return the newest commits of `owner/name` with their jobs. Empty if no job of it is known."""

    def changes(self) -> int:
        """Return a number that grows with each change of a record."""

    async def ended(self, job: JobId) -> Explanation | None:
        """Return what is known about a job from the store, or None if it is not kept any more.

        Raises: StoreError.
        """

    async def past(self, job: JobId) -> Past:
        """Return what a job waited for, and which launches failed meanwhile, as far as the history is kept.

        Raises: StoreError.
        """

    async def history(self, name: str) -> Sequence[HistoryRow]:
        """Return what happened to a record, oldest first.

        `name` is a job's number, a machine's ID, its ID at its provider, or the name of a runner, launch
        request or SKU. The history of a job or a machine includes its machine, runner and launch request.
        Raises: UnknownRecordError, StoreError.
        """
