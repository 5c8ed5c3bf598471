"""Applies events to the ledger in memory and writes the changes to the store.

Events are durable once `record` returns. After a failed write the process must stop, because its
memory is ahead of the store.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import structlog

from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.store import DeliveryKey, Store, StoreError
from autoscaler.controller.ports.telemetry import Telemetry
from autoscaler.ledger.ledger import Ledger
from autoscaler.model.accounting import Usage
from autoscaler.model.changes import Changes, HistoryRow, UnlistedTransitionError, copied
from autoscaler.model.events import Event
from autoscaler.model.fleet import Fleet
from autoscaler.model.identifiers import Instant, JobId, MachineId
from autoscaler.model.jobs.job import Job
from autoscaler.model.machines.machine import Machine

_log = structlog.get_logger(__name__)


def log_refused_transition(error: UnlistedTransitionError) -> None:
    """Log a transition that is in no table. For the production ledger: the record keeps its state."""
    _log.error(
        "transition_refused",
        kind=error.kind,
        record=error.key,
        before=error.before,
        to=error.to,
    )


class Journal:
    """Owns the ledger. Every event goes through `record` or `note`."""

    def __init__(self, ledger: Ledger, store: Store, clock: Clock, telemetry: Telemetry) -> None:
        self.ledger = ledger
        self.changed = asyncio.Event()
        self.broken: StoreError | None = None
        self._store = store
        self._clock = clock
        self._telemetry = telemetry
        self._listeners: list[Callable[[Sequence[HistoryRow]], None]] = []
        self._event_listeners: list[Callable[[Event], None]] = []
        self._usage: list[Usage] = []
        self._group: list[tuple[Changes, Sequence[DeliveryKey]]] = []
        self._latest: asyncio.Future[None] | None = None

    @property
    def now(self) -> Instant:
        """The current time of the controller's clock."""
        return self._clock.now()

    def fleet(self) -> Fleet:
        """Return the fleet as it is now, for the planner."""
        return self.ledger.fleet(self._clock.now())

    def on_history(self, listener: Callable[[Sequence[HistoryRow]], None]) -> None:
        """Call `listener` with the rows of history that are about to be stored."""
        self._listeners.append(listener)

    def record_of(self, row: HistoryRow) -> Job | Machine | None:
        """Return the job or machine that a row is about, or None if it is in memory no more."""
        if row.kind == "job":
            return self.ledger.state.jobs.get(JobId(int(row.record)))
        if row.kind == "machine":
            return self.ledger.state.machines.get(MachineId(row.record))
        return None

    def jobs_in(self, rows: Iterable[HistoryRow]) -> Iterator[tuple[HistoryRow, Job]]:
        """Yield the rows of jobs that are in memory, with these jobs."""
        for row in rows:
            if isinstance(job := self.record_of(row), Job):
                yield row, job

    def machines_in(self, rows: Iterable[HistoryRow]) -> Iterator[tuple[HistoryRow, Machine]]:
        """Yield the rows of machines that are in memory, with these machines."""
        for row in rows:
            if isinstance(machine := self.record_of(row), Machine):
                yield row, machine

    def add_usage(self, usage: Usage) -> None:
        """Store what a machine's time bought, with the rows of history that a listener was called for.

        Both are in one transaction, so that no use is counted twice after a crash, or lost.
        """
        self._usage.append(usage)

    def on_event(self, listener: Callable[[Event], None]) -> None:
        """Call `listener` with each event after the ledger applied it."""
        self._event_listeners.append(listener)

    async def record(self, *events: Event) -> None:
        """Apply events, make them durable, and wake the planner. Raises StoreError."""
        self.note(*events)
        self.changed.set()
        await self.commit()

    def note(self, *events: Event) -> None:
        """Apply events without waking the planner. The next commit makes them durable."""
        for event in events:
            self.ledger.apply(event)
            for listener in self._event_listeners:
                listener(event)

    async def commit(self) -> None:
        """Make all events applied so far durable. Raises StoreError."""
        self.start_commit()
        # The store writes in order, so the latest write implies all earlier ones. Shielded, because
        # cancelling a caller must not cancel the write.
        if self._latest is not None:
            await asyncio.shield(self._latest)
        self._raise_failure()

    def start_commit(self, applied: Sequence[DeliveryKey] = ()) -> None:
        """Pass all changes so far to the store, in one transaction. `commit` waits for it.

        One transaction is under way at a time, and changes passed to it meanwhile share the next one.
        Otherwise the store could write a later transaction after it failed to write an earlier one.
        Raises: StoreError if an earlier transaction failed.
        """
        self._raise_failure()
        changes = self.ledger.take_changes()
        if changes or applied:
            for listener in self._listeners:
                listener(changes.history)
            # Copied now, because the records may change before the write starts.
            records = tuple(map(copied, changes.records))
            usage, self._usage = tuple(self._usage), []
            if not self._group:
                self._latest = asyncio.ensure_future(self._write_group(self._latest))
                self._latest.add_done_callback(_retrieve_error)
            self._group.append((replace(changes, records=records, usage=usage), applied))

    def _raise_failure(self) -> None:
        if self.broken is not None:
            # Later changes depend on the lost ones and must not be stored without them.
            raise StoreError(str(self.broken)) from self.broken

    async def _write_group(self, before: "asyncio.Future[None] | None") -> None:
        if before is not None:
            await before
        group, self._group = self._group, []
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            await self._store.commit(
                [record for changes, _ in group for record in changes.records],
                [row for changes, _ in group for row in changes.history],
                [key for _, applied in group for key in applied],
                [cooldown for changes, _ in group for cooldown in changes.cooldowns],
                next((c.installations for c, _ in reversed(group) if c.installations), None),
                [used for changes, _ in group for used in changes.usage],
            )
        except StoreError as error:
            self.broken = error
            raise
        self._telemetry.store_write("commit", loop.time() - began)


def _retrieve_error(write: "asyncio.Future[None]") -> None:
    """Retrieve the write's error. `broken` keeps it, and the next commit raises it."""
    if not write.cancelled():
        write.exception()
