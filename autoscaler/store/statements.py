"""The store's queries, in SQL that all databases understand, for use in an open transaction."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from autoscaler.controller.ports.store import (
    Delivery,
    DeliveryKey,
    HistoryRow,
    StoreError,
)
from autoscaler.model.accounting import MachineUse, Usage
from autoscaler.model.identifiers import (
    Instant,
    ProviderName,
    SkuName,
)
from autoscaler.model.jobs.job import Job
from autoscaler.store.batch import Batch
from autoscaler.store.bodies import decompress
from autoscaler.store.codec import CorruptRecordError, R, decode
from autoscaler.store.database import Connection, Value
from autoscaler.store.rows import Row, read_history
from autoscaler.store.tables import (
    COOLDOWNS,
    HISTORY,
    INBOX,
    JOBS,
    META,
    USAGE,
    Table,
)

_ALL = 2**62


def write(connection: Connection, batch: Batch) -> frozenset[DeliveryKey]:
    """Write a batch. Return the keys of the new deliveries."""
    if batch.applied:
        # Before the inserts: a delivery that is accepted after it was applied is a new one.
        connection.mark_applied(list(batch.applied))
    fresh: frozenset[DeliveryKey] = frozenset()
    if batch.inbox:
        fresh = connection.insert_unknown(list(batch.inbox.values()))
    for table, changed in batch.records.items():
        connection.upsert(table, list(changed.values()))
    if batch.history:
        connection.insert(HISTORY, batch.history)
    if batch.cooldowns:
        connection.upsert(COOLDOWNS, list(batch.cooldowns.values()))
    if batch.usage:
        connection.add(USAGE, batch.usage)
    if batch.installations is not None:
        former = msgspec.json.encode(batch.installations.former).decode()
        set_meta(connection, "installation", batch.installations.own)
        set_meta(connection, "former_installations", former)
    if batch.heartbeat is not None:
        set_meta(connection, "heartbeat", repr(batch.heartbeat))
    if batch.arrived_until is not None:
        set_meta(connection, "arrived_until", repr(batch.arrived_until))
    return fresh


def unapplied(connection: Connection, limit: int = _ALL) -> list[Row]:
    """Return the rows of the oldest deliveries that are not applied: see `decode_delivery`."""
    # The text of the index's condition: SQLite compares it.
    return whole_rows(connection, INBOX, "applied = 0 ORDER BY seq LIMIT :limit", limit=limit)


def find_jobs(connection: Connection, jobs: Sequence[int]) -> tuple[Job, ...]:
    """Return jobs of any age, by ID, without those whose rows were deleted."""
    rows = connection.read(
        "SELECT id, record FROM jobs WHERE id = ANY (:ids) ORDER BY id", ids=list(jobs)
    )
    return decode_rows(rows, JOBS, Job)


def read_rows_of(
    connection: Connection, kind: str, record: str, limit: int, until: Instant
) -> tuple[HistoryRow, ...]:
    """Return the newest `limit` history rows of one record that are not after `until`, oldest first."""
    newest = "kind = :kind AND record = :record AND at <= :until ORDER BY seq DESC LIMIT :limit"
    rows = whole_rows(
        connection, HISTORY, newest, kind=kind, record=record, until=until, limit=limit
    )
    return tuple(read_history(row) for row in reversed(rows))


def read_usage(connection: Connection, since: int) -> tuple[Usage, ...]:
    """Return the sums over all days since this one. See `Store.usage`."""
    rows = connection.read(
        "SELECT provider, sku, repository, use, sum(seconds), sum(dollars), sum(times) FROM usage "
        "WHERE day >= :since GROUP BY provider, sku, repository, use",
        since=since,
    )
    try:
        return tuple(
            Usage(since, ProviderName(provider), SkuName(sku), repository, MachineUse(use), *found)
            for provider, sku, repository, use, *found in rows
        )
    except ValueError as error:
        raise StoreError(f"a row of usage is damaged: {error}") from error


def whole_rows(connection: Connection, table: Table, where: str, /, **values: Value) -> list[Row]:
    """Return the whole rows for which the condition is true."""
    columns = ", ".join(table.columns)
    sql = f"SELECT {columns} FROM {table.name} WHERE {where}"  # noqa: S608 - only constants
    return [dict(zip(table.columns, row, strict=True)) for row in connection.read(sql, **values)]


def decode_rows(rows: Iterable[tuple[Any, ...]], table: Table, kind: type[R]) -> tuple[R, ...]:
    """Return the records of rows, each with its key and its JSON. Raises: StoreError."""
    return tuple(_decoded(rows, table, kind))


def _decoded(rows: Iterable[tuple[Any, ...]], table: Table, kind: type[R]) -> Iterator[R]:
    for key, text in rows:
        try:
            yield decode(kind, text)
        except CorruptRecordError as error:
            raise StoreError(f"the row {key} of {table.name} is damaged: {error}") from error


def decode_delivery(row: Row) -> Delivery:
    """Return the delivery of a row of the inbox. Raises: StoreError."""
    body = row["body"]
    assert isinstance(body, bytes)
    try:
        return Delivery(
            str(row["id"]), str(row["event"]), float(str(row["received_at"])), decompress(body)
        )
    except ValueError as error:
        raise StoreError(f"the delivery {row['id']} in inbox is damaged: {error}") from error


def get_meta(connection: Connection, key: str) -> str | None:
    """Return a value of `meta`, or None without one."""
    found = connection.read("SELECT value FROM meta WHERE key = :key", key=key)
    return str(found[0][0]) if found else None


def set_meta(connection: Connection, key: str, value: str) -> None:
    """Set a value of `meta`."""
    connection.upsert(META, [{"key": key, "value": value}])
