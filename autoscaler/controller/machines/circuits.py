"""Logs runners that exited without a job, and closes the circuit breaker of an image that was replaced.

The ledger opens circuit breakers, from the same reports.
"""

from collections.abc import Mapping, Sequence

import structlog

from autoscaler.controller.journal import Journal
from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.provider import OutcomeUnknownError, Provider, ProviderError
from autoscaler.controller.reporting.log_fields import machine_fields
from autoscaler.controller.wakeups import Wakeups
from autoscaler.ledger.failures.circuits import open_circuits
from autoscaler.model.changes import HistoryRow
from autoscaler.model.cooldowns import exits_key
from autoscaler.model.events import CircuitClosed, ImageReplaced
from autoscaler.model.identifiers import ProviderName, Seconds, SkuName
from autoscaler.model.machines.machine import ExitReason, Machine, MachineState
from autoscaler.model.reasons.table import WaitCode

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
        self._seen: dict[SkuName, set[str]] = {}
        journal.on_history(self._on_history)

    async def run(self) -> None:
        """Check images soon after a circuit breaker opens, and every minute. Raises StoreError."""
        while True:
            await self.check()
            await self._news.wait(_OPENED, LOOK_EVERY)

    async def check(self) -> None:
        """Close the circuit breakers of refused images that their SKU no longer launches.

        Of the other open ones, launch the next probe at once if the SKU's image has changed. Raises StoreError.
        """
        state = self._journal.ledger.state
        for sku in tuple(state.catalogue.skus):
            rows = open_circuits(state, sku)
            if not rows:
                self._seen.pop(sku, None)
            elif images := await self._images(sku):
                before, self._seen[sku] = self._seen.get(sku, images), images
                refused = {row.image for row in rows if row.key == exits_key(sku) and row.image}
                if refused and not refused & images:
                    await self._report(CircuitClosed, sku, images, refused)
                elif before != images:
                    await self._report(ImageReplaced, sku, images, before)

    async def _report(
        self,
        event: type[CircuitClosed | ImageReplaced],
        sku: SkuName,
        images: set[str],
        before: set[str],
    ) -> None:
        detail = f"image {', '.join(sorted(images))} in place of {', '.join(sorted(before))}"
        await self._journal.record(event(self._journal.now, sku, detail))
        closed = event is CircuitClosed
        _log.warning("circuit_closed" if closed else "image_replaced", sku=sku, reason=detail)

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
        for row, machine in self._journal.machines_in(rows):
            if row.event == MachineState.EXITED:
                self._report_exit(machine, row.detail)
            elif row.event == "circuit_opened":
                _log.error(
                    "circuit_opened",
                    code=WaitCode.CIRCUIT_OPEN,
                    **machine_fields(machine),
                    reason=row.detail,
                )
                self._news.wake(_OPENED)

    def _report_exit(self, machine: Machine, detail: str) -> None:
        runner = self._journal.ledger.state.runner_of(machine)
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
