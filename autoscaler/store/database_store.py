"""A store on any database: one thread, and grouped commits.

After a StoreError nothing of the batch is stored, and the caller may try again.
"""

import asyncio
import math
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Generic, Self, TypeVar

from autoscaler.controller.ports.store import (
    Cooldown,
    Delivery,
    DeliveryKey,
    HistoryRow,
    Record,
    SavedState,
    StoreError,
)
from autoscaler.model.accounting import Usage
from autoscaler.model.identifiers import Installations, Instant, JobId, ProviderName
from autoscaler.model.jobs.job import Job
from autoscaler.model.prices_and_quotas import Reading, ReadingKind
from autoscaler.store import loading, pruning, statements
from autoscaler.store.batch import Batch, Change, Decision, Heartbeat
from autoscaler.store.database import Answer, Connection, Database
from autoscaler.store.group_commit import GroupCommit
from autoscaler.store.readings import read_readings, reading_rows, replace_readings
from autoscaler.store.rows import Arrival, arrival, job_key, moment, name

D = TypeVar("D", bound=Database)


class DatabaseStore(Generic[D]):
    """What any `Store` in one database has, for the event loop that opened it."""

    def __init__(self, database: D, thread: ThreadPoolExecutor) -> None:
        """Use `open_with` instead, which opens the database in the thread."""
        self._database = database
        self._thread = thread
        self._commits = GroupCommit(thread, self._write)
        self._closing: asyncio.Task[None] | None = None

    @classmethod
    async def open_with(cls, make: Callable[[], D]) -> Self:
        """Open the database that `make` opens. Raises: StoreError."""
        thread = ThreadPoolExecutor(1, thread_name_prefix="store")
        opening = thread.submit(make)
        try:
            return cls(await asyncio.wrap_future(opening), thread)
        except BaseException:
            # If the caller was cancelled, the thread may still open the database.
            thread.submit(_close_unwanted, opening)
            thread.shutdown(wait=False)
            raise

    async def load(self, horizon: Instant) -> SavedState:
        """See `Store.load`."""
        stored = await self._transact(lambda connection: loading.read(connection, horizon))
        # Not in the thread of the transactions: a leader renews its lease meanwhile.
        try:
            state = await asyncio.to_thread(loading.decoded, stored)
        except StoreError as error:
            raise StoreError(f"{self._database.title}: {error}") from error
        jobs = loading.earlier_jobs(state)
        if not jobs:
            return state
        found = await self._transact(lambda connection: statements.find_jobs(connection, jobs))
        return replace(state, jobs=state.jobs + found)

    def accept(self, delivery: Delivery) -> "asyncio.Future[bool]":
        """See `Store.accept`."""
        try:
            return self._submit(arrival(delivery))
        except StoreError as error:
            refused: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
            refused.set_exception(error)
            return refused

    async def commit(
        self,
        records: Sequence[Record],
        history: Sequence[HistoryRow],
        applied: Sequence[DeliveryKey] = (),
        cooldowns: Sequence[Cooldown] = (),
        installations: Installations | None = None,
        usage: Sequence[Usage] = (),
    ) -> None:
        """See `Store.commit`."""
        await self._submit(Decision(records, history, applied, cooldowns, installations, usage))

    async def record_heartbeat(self, at: Instant, arrived_until: Instant | None = None) -> None:
        """See `Store.record_heartbeat`."""
        until = None if arrived_until is None else moment(arrived_until, "arrived_until")
        await self._submit(Heartbeat(moment(at, "heartbeat"), until))

    async def find_job(self, job: JobId) -> Job | None:
        """See `Store.find_job`."""
        key = job_key(job)
        found = await self._transact(lambda c: statements.find_jobs(c, [key]))
        return found[0] if found else None

    async def history(
        self, kind: str, record: str, limit: int = 1000, until: Instant = math.inf
    ) -> tuple[HistoryRow, ...]:
        """See `Store.history`."""
        of = name(kind, "history kind"), name(record, "history record")
        return await self._transact(
            lambda connection: statements.read_rows_of(connection, *of, limit, until)
        )

    async def usage(self, since: int) -> tuple[Usage, ...]:
        """See `Store.usage`."""
        return await self._transact(lambda connection: statements.read_usage(connection, since))

    async def prune(
        self, before: Instant, faults_before: Instant | None = None, usage_before: int = 0
    ) -> int:
        """See `Store.prune`. Uses many short transactions, so that deliveries do not wait long."""
        gone = 0
        while some := await self._transact(lambda c: pruning.prune_records(c, before)):
            gone += some
        while await self._transact(lambda c: pruning.prune_deliveries(c, before)):
            pass
        after: pruning.Cursor | None = pruning.START
        while after is not None:
            after = await self._transact(
                partial(
                    pruning.prune_history,
                    before=before,
                    after=after,
                    faults_before=before if faults_before is None else faults_before,
                )
            )
        await self._transact(partial(pruning.prune_cooldowns, before=before))
        await self._transact(partial(pruning.prune_usage, before=usage_before))
        while await self._in_thread(self._database.shrink):
            pass
        return gone

    async def load_readings(self, provider: ProviderName, kind: ReadingKind) -> tuple[Reading, ...]:
        """See `Store.load_readings`."""
        return await self._transact(lambda connection: read_readings(connection, provider, kind))

    async def save_readings(
        self, provider: ProviderName, kind: ReadingKind, readings: Sequence[Reading]
    ) -> None:
        """See `Store.save_readings`."""
        rows = reading_rows(provider, kind, readings)
        await self._transact(lambda connection: replace_readings(connection, provider, kind, rows))

    async def close(self) -> None:
        """See `Store.close`. Later calls of any method raise StoreError."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(), name="store closing")
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        await self._commits.drained()
        await asyncio.get_running_loop().run_in_executor(self._thread, self._database.close)
        self._thread.shutdown()

    def _submit(self, change: Change) -> "asyncio.Future[bool]":
        self._refuse_if_closed()
        return self._commits.submit(change)

    async def _transact(self, do: Callable[[Connection], Answer]) -> Answer:
        return await self._in_thread(lambda: self._database.transaction(do))

    async def _in_thread(self, do: Callable[[], Answer]) -> Answer:
        self._refuse_if_closed()
        return await asyncio.get_running_loop().run_in_executor(self._thread, do)

    def _refuse_if_closed(self) -> None:
        if self._closing is not None:
            raise StoreError(f"{self._database.title}: the store is closed")

    def _write(self, changes: Sequence[Change]) -> list[bool | StoreError]:
        batch = Batch()
        added = [_added(batch, change) for change in changes]
        fresh = self._database.transaction(lambda connection: statements.write(connection, batch))
        return [
            answer and change.key in fresh if isinstance(change, Arrival) else answer
            for change, answer in zip(changes, added, strict=True)
        ]


def _added(batch: Batch, change: Change) -> bool | StoreError:
    """Add a change to the batch. Return the error if it cannot be stored, and write the others."""
    try:
        return batch.add(change)
    except StoreError as error:
        return error


def _close_unwanted(opening: "Future[D]") -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()
