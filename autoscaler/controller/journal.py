"""The one place where events meet the ledger and the store: applied in memory, then durable.

What `record` returned for is on disk. It never decides; a store that fails ends the process,
because memory would be ahead of what a restart finds.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.store import DeliveryKey, Store, StoreError
from autoscaler.controller.ports.telemetry import Telemetry
from autoscaler.controller.signals import report
from autoscaler.ledger.ledger import Ledger
from autoscaler.model.changes import Changes, HistoryRow, copied
from autoscaler.model.events import Event
from autoscaler.model.fleet import Fleet
from autoscaler.model.identifiers import Instant


class Journal:
    """Owns the ledger. Every event of the installation goes through `record` or `note`."""

    def __init__(self, ledger: Ledger, store: Store, clock: Clock, telemetry: Telemetry) -> None:
        self.ledger = ledger
        self.changed = asyncio.Event()
        self.broken: StoreError | None = None
        self._store = store
        self._clock = clock
        self._telemetry = telemetry
        self._listeners: list[Callable[[Sequence[HistoryRow]], None]] = []
        self._group: list[tuple[Changes, Sequence[DeliveryKey]]] = []
        self._latest: asyncio.Future[None] | None = None

    @property
    def now(self) -> Instant:
        """The controller's clock."""
        return self._clock.now()

    def fleet(self) -> Fleet:
        """The fleet as it is now."""
        return self.ledger.fleet(self._clock.now())

    def on_history(self, listener: Callable[[Sequence[HistoryRow]], None]) -> None:
        """Have `listener` called with what is about to be stored of the history."""
        self._listeners.append(listener)

    async def record(self, *events: Event, applied: Sequence[DeliveryKey] = ()) -> None:
        """Apply events and make them durable; wakes the planner. Raises StoreError."""
        self.note(*events)
        self.changed.set()
        await self.commit(applied)

    def note(self, *events: Event) -> None:
        """Apply events that need not be durable at once, nor wake the planner.

        The next commit takes them along.
        """
        for event in events:
            self.ledger.apply(event)

    async def commit(self, applied: Sequence[DeliveryKey] = ()) -> None:
        """Make everything applied so far durable. Raises StoreError."""
        self.hand_over(applied)
        # The store writes in order: once the latest write is through, so is all before it. A
        # caller that is cancelled must not take the write along.
        if self._latest is not None:
            await asyncio.shield(self._latest)
        self._raise_failure()

    def hand_over(self, applied: Sequence[DeliveryKey] = ()) -> None:
        """Give the store everything applied so far, in one transaction; `commit` waits for it.

        One transaction is under way at a time. What is handed over meanwhile shares the next: the
        store would keep it by itself, although it refuses the one before. Raises StoreError if an
        earlier one was not kept.
        """
        self._raise_failure()
        changes = self.ledger.take_changes()
        if changes or applied:
            report(changes, self.ledger.state, self._telemetry)
            for hearer in self._listeners:
                hearer(changes.history)
            # Copied now: by the time the write starts, the records may have moved on.
            records = tuple(map(copied, changes.records))
            if not self._group:
                self._latest = asyncio.ensure_future(self._write_group(self._latest))
                self._latest.add_done_callback(_look_at)
            self._group.append((replace(changes, records=records), applied))

    def _raise_failure(self) -> None:
        if self.broken is not None:
            # What builds on a gap must not be kept without it.
            raise StoreError(str(self.broken)) from self.broken

    async def _write_group(self, before: "asyncio.Future[None] | None") -> None:
        if before is not None:
            await before
        group, self._group = self._group, []
        try:
            await self._store.commit(
                [record for changes, _ in group for record in changes.records],
                [row for changes, _ in group for row in changes.history],
                [key for _, applied in group for key in applied],
                [cooldown for changes, _ in group for cooldown in changes.cooldowns],
                next((c.installations for c, _ in reversed(group) if c.installations), None),
            )
        except StoreError as error:
            self.broken = error
            raise


def _look_at(write: "asyncio.Future[None]") -> None:
    """Its error is told by `broken` and to whoever commits next, even if its caller has left."""
    if not write.cancelled():
        write.exception()
