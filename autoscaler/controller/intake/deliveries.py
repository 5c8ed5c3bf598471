"""Takes webhook deliveries in: stores each durably, then applies it to the ledger once."""

import asyncio
from collections.abc import Callable
from functools import partial

import structlog

from autoscaler.controller.journal import Journal
from autoscaler.controller.ports.store import Delivery, DeliveryKey, Store, StoreError
from autoscaler.controller.ports.telemetry import Telemetry
from autoscaler.ledger.ledger import KEPT_FOR
from autoscaler.model.events import JobObserved
from autoscaler.model.identifiers import Instant, Seconds
from autoscaler.model.jobs.demand import scope_of
from autoscaler.model.jobs.job import JobState

Parse = Callable[[bytes, Instant], JobObserved | None]
"""Returns the event in a body, or None if it has none. Raises ValueError if the body is invalid."""

REPEATED_AFTER: Seconds = 60.0
"""Minimum time between two reads of a job at GitHub that repeated deliveries cause."""

APPLIED_AT_ONCE = 100
"""Deliveries applied in one step of the event loop (about 50 us each)."""

_log = structlog.get_logger(__name__)


class Intake:
    """Holds deliveries that are stored and not applied yet.

    `jobs_queued` counts the events so far that report a queued job.
    """

    def __init__(self, store: Store, journal: Journal, parse: Parse, telemetry: Telemetry) -> None:
        self._store = store
        self._telemetry = telemetry
        self._journal = journal
        self._parse = parse
        self._waiting: list[tuple[DeliveryKey | None, JobObserved | None]] = []
        self._unfinished: set[DeliveryKey] = set()
        self._failure: StoreError | None = None
        self.jobs_queued = 0

    def accept(self, delivery: Delivery) -> "asyncio.Future[bool | None]":
        """Return a future: True once the delivery is durable, False if it is a duplicate.

        A delivery without an event, or for a repository outside every scope, is not stored, and the
        future's result is None. The delivery is stored even if its sender disconnects, unless the
        future is cancelled. Its error is a StoreError.

        Raises: ValueError if the body is malformed.
        """
        event = self._parse(delivery.body, delivery.received_at)
        if event is None or self._is_outside(event):
            if event is not None:
                self._waiting.append((None, event))
            unneeded: asyncio.Future[bool | None] = asyncio.get_running_loop().create_future()
            unneeded.set_result(None)
            return unneeded
        stored: asyncio.Future[bool | None] = asyncio.ensure_future(self._store.accept(delivery))
        began = asyncio.get_running_loop().time()
        stored.add_done_callback(partial(self._stored, delivery, event, began))
        return stored

    def _stored(
        self,
        delivery: Delivery,
        event: JobObserved,
        began: Seconds,
        stored: "asyncio.Future[bool | None]",
    ) -> None:
        if stored.cancelled():
            return
        error = stored.exception()
        if isinstance(error, StoreError):
            # A disk that is full for deliveries may have room for smaller writes for ever: this
            # failure ends the process too, and the next process asks GitHub to redeliver.
            self._failure = error
            self._journal.changed.set()
        elif error is None and stored.result():
            self._take(delivery.key, event)
            self._measure(delivery, event, began)
        elif error is None and self._waits_to_be_queued(event):
            self._take(None, event)

    def _measure(self, delivery: Delivery, event: JobObserved, began: Seconds) -> None:
        self._telemetry.store_write("accept", asyncio.get_running_loop().time() - began)
        happened_at = _happened_at(event)
        if happened_at is not None:
            self._telemetry.delivery_lag(delivery.received_at - happened_at)

    def resume(self, *deliveries: Delivery) -> int:
        """Queue stored deliveries for the loop, but those that wait already. Return the number queued."""
        new = [one for one in deliveries if one.key not in self._unfinished]
        for delivery in new:
            self._take(delivery.key, self._read(delivery))
        return len(new)

    def _waits_to_be_queued(self, event: JobObserved) -> bool:
        """Return whether a known body may say something new: the job waits, and the body says `queued`.

        A job that a deployment protection rule holds back is queued, waiting, and queued again. The job is then
        read at GitHub, so a body that an attacker repeats must not cause many reads.
        """
        job = self._journal.ledger.state.jobs.get(event.id)
        if job is None or job.state is not JobState.WAITING or event.state is not JobState.QUEUED:
            return False
        if job.disputed:
            return False  # the job is being read already
        return job.read_at is None or event.at >= job.read_at + REPEATED_AFTER

    def _take(self, key: DeliveryKey | None, event: JobObserved | None) -> None:
        if key is not None:
            self._unfinished.add(key)
        self._waiting.append((key, event))
        self.jobs_queued += event is not None and event.state is JobState.QUEUED
        self._journal.changed.set()

    async def apply_waiting(self) -> int:
        """Apply waiting deliveries in order of arrival, in pieces. Return the number applied.

        The changes of a piece and its deliveries' mark as applied are one transaction. All pieces are
        durable on return. Deliveries that arrive meanwhile may wait for the next call.
        Raises: StoreError, also for an earlier delivery that could not be stored.
        """
        more = range(APPLIED_AT_ONCE, len(self._waiting), APPLIED_AT_ONCE)
        applied = await self._apply_piece()
        for _ in more:
            await asyncio.sleep(0)
            applied += await self._apply_piece()
        await self._journal.commit()
        self._unfinished.difference_update(applied)
        return len(applied)

    async def _apply_piece(self) -> list[DeliveryKey | None]:
        if self._failure is not None:
            raise StoreError(str(self._failure)) from self._failure
        piece, self._waiting = self._waiting[:APPLIED_AT_ONCE], self._waiting[APPLIED_AT_ONCE:]
        for _, event in piece:
            if event is not None:
                await self.load_pruned_job(event)
                self._journal.note(event)
        self._journal.start_commit([key for key, _ in piece if key is not None])
        return [key for key, _ in piece]

    def _read(self, delivery: Delivery) -> JobObserved | None:
        try:
            return self._parse(delivery.body, delivery.received_at)
        except ValueError as error:
            # An earlier release may have stored it. It must not block the deliveries behind it.
            _log.error("delivery_not_parsed", delivery=delivery.id, error=str(error))
            return None

    def _is_outside(self, event: JobObserved) -> bool:
        catalogue = self._journal.ledger.state.catalogue
        return scope_of(catalogue, event.repository) is None

    async def load_pruned_job(self, event: JobObserved) -> None:
        """Load a job from the store that is no longer in memory. Raises StoreError."""
        # A job that completed long ago is no longer in memory. Without its row, a repeated delivery
        # would add it as a new job.
        state = self._journal.ledger.state
        if event.id in state.jobs or event.queued_at > self._journal.now - KEPT_FOR:
            return
        if self._is_outside(event):
            return
        job = await self._store.find_job(event.id)
        if job is not None and event.id not in state.jobs:
            self._journal.ledger.add_pruned_job(job)


def _happened_at(event: JobObserved) -> Instant | None:
    """Return when GitHub says that the job started or ended, or None for another event.

    A job that was approved is queued later than its `created_at` says, so `queued` proves no lag.
    """
    if event.state is JobState.COMPLETED:
        return event.completed_at
    return event.started_at if event.state is JobState.IN_PROGRESS else None
