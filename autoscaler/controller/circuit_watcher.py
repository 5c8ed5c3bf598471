"""Logs runners that exited without a job, and closes the circuit breaker of an image that was replaced.

The ledger opens circuit breakers, from the same reports.
"""

from collections.abc import Mapping, Sequence

import structlog

from autoscaler.controller.journal import Journal
from autoscaler.controller.log_fields import machine_fields
from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.provider import OutcomeUnknownError, Provider, ProviderError
from autoscaler.controller.wakeups import Wakeups
from autoscaler.ledger.circuits import open_circuits
from autoscaler.model.changes import HistoryRow
from autoscaler.model.events import CircuitClosed
from autoscaler.model.identifiers import MachineId, ProviderName, Seconds, SkuName
from autoscaler.model.machines import ExitReason, Machine, MachineState
from autoscaler.model.waiting import WaitCode

LOOK_EVERY: Seconds = 60.0
"""How often the images of SKUs with an open circuit breaker are read."""

_OPENED = "opened"
_EXPECTED = frozenset({ExitReason.UNUSED, ExitReason.ENDED, ExitReason.STOPPED})
"""Reasons to exit without a job that are no failure: the runner was unused, or its machine was stopped."""

_log = structlog.get_logger(__name__)


class CircuitWatcher:
    """Listens to the history that is about to be stored, and reads the providers' images in `run`."""

    def __init__(
        self, journal: Journal, providers: Mapping[ProviderName, Provider], clock: Clock
    ) -> None:
        self._journal = journal
        self._providers = providers
        self._news: Wakeups[str] = Wakeups(clock)
        journal.on_history(self._on_history)

    async def run(self) -> None:
        """Check images soon after a circuit breaker opens, and every minute. Raises StoreError."""
        while True:
            await self.check()
            await self._news.wait(_OPENED, LOOK_EVERY)

    async def check(self) -> None:
        """Close the circuit breakers of images that their SKU no longer launches. Raises StoreError."""
        state = self._journal.ledger.state
        for sku in tuple(state.catalogue.skus):
            refused = {row.image for row in open_circuits(state, sku) if row.image}
            if refused and (images := await self._images(sku)) and not refused & images:
                detail = f"image {', '.join(sorted(images))} in place of {', '.join(refused)}"
                closed = CircuitClosed(self._journal.now, sku, detail)
                await self._journal.record(closed)
                _log.warning("circuit_closed", sku=sku, reason=detail)

    async def _images(self, sku: SkuName) -> set[str]:
        """Return the images of the SKU's launch options, or an empty set if one cannot be read."""
        known = self._journal.ledger.state.catalogue.skus.get(sku)
        if known is None:  # a reload removed it while another SKU's images were read
            return set()
        found: set[str] = set()
        for name in dict.fromkeys(option.provider for option in known.launch_options):
            try:
                found.add(await self._providers[name].image(sku))
            except (KeyError, ProviderError, OutcomeUnknownError) as error:
                _log.warning("image_not_read", sku=sku, provider=name, error=str(error))
                return set()
        return found

    def _on_history(self, rows: Sequence[HistoryRow]) -> None:
        for row in rows:
            if row.kind != "machine":
                continue
            machine = self._journal.ledger.state.machines.get(MachineId(row.record))
            if machine is not None and row.event == MachineState.EXITED:
                self._report_exit(machine, row.detail)
            elif machine is not None and row.event == "circuit_opened":
                _log.error(
                    "circuit_opened",
                    code=WaitCode.CIRCUIT_OPEN,
                    **machine_fields(machine),
                    reason=row.detail,
                )
                self._news.wake(_OPENED)

    def _report_exit(self, machine: Machine, detail: str) -> None:
        runners = self._journal.ledger.state.runners
        runner = runners.get(machine.work.runner) if machine.work.runner is not None else None
        if machine.work.exit_reason in _EXPECTED or (runner is not None and runner.job is not None):
            return
        _log.warning(
            "runner_exited_without_job",
            **machine_fields(machine),
            image=machine.placement.image,
            runner=machine.work.runner,
            runner_version=machine.progress.runner_version,
            reason=machine.work.exit_reason,
            detail=detail,
        )
