"""The store's queries, in SQL that all databases understand, for use in an open transaction."""

import secrets
from collections.abc import Iterable
from typing import Any

import msgspec

from autoscaler.controller.ports.store import (
    Cooldown,
    Delivery,
    DeliveryKey,
    HistoryRow,
    SavedState,
    StoreError,
)
from autoscaler.model.accounting import MachineUse, Usage
from autoscaler.model.identifiers import (
    InstallationId,
    Installations,
    Instant,
    ProviderName,
    SkuName,
)
from autoscaler.model.jobs.job import Job
from autoscaler.model.jobs.runners import Runner
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.machines.interruptions import Rerun
from autoscaler.model.machines.launch_requests import LaunchRequest
from autoscaler.model.machines.machine import Machine
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
    LAUNCH_REQUESTS,
    MACHINES,
    META,
    RERUNS,
    RUNNERS,
    USAGE,
    Table,
)

_ALL = 2**62

_KEPT = "(ended_at IS NULL OR ended_at > :horizon)"
_KEPT_OR_CARRIED = f"{_KEPT} OR machine IN (SELECT id FROM machines WHERE {_KEPT})"  # noqa: S608 - constants
_KEPT_OR_USED = f"{_KEPT} OR id IN (SELECT launch_request FROM machines WHERE {_KEPT})"  # noqa: S608 - constants


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
        _set_meta(connection, "installation", batch.installations.own)
        _set_meta(connection, "former_installations", former)
    if batch.heartbeat is not None:
        _set_meta(connection, "heartbeat", repr(batch.heartbeat))
    if batch.arrived_until is not None:
        _set_meta(connection, "arrived_until", repr(batch.arrived_until))
    return fresh


def load(connection: Connection, horizon: Instant) -> SavedState:
    """Return all records that have not ended, or ended after `horizon`.

    Launch requests and runners of returned machines are included, and the jobs of these runners: the provider
    may still report that a machine was taken from a job that ended long ago.
    """
    heartbeat = _get_meta(connection, "heartbeat")
    arrived_until = _get_meta(connection, "arrived_until")
    runners = _read(connection, RUNNERS, Runner, _KEPT_OR_CARRIED, horizon=horizon)
    return SavedState(
        installations=Installations(_installation(connection), _former_installations(connection)),
        heartbeat=None if heartbeat is None else float(heartbeat),
        jobs=_jobs(connection, horizon, runners),
        launch_requests=_read(
            connection, LAUNCH_REQUESTS, LaunchRequest, _KEPT_OR_USED, horizon=horizon
        ),
        machines=_read(connection, MACHINES, Machine, _KEPT, horizon=horizon),
        runners=runners,
        cooldowns=_cooldowns(connection),
        unapplied=unapplied(connection),
        arrived_until=None if arrived_until is None else float(arrived_until),
        reruns=_read(connection, RERUNS, Rerun),
    )


def _jobs(connection: Connection, horizon: Instant, of: Iterable[Runner]) -> tuple[Job, ...]:
    """Return the jobs that have not ended, or ended after `horizon`, and those of these runners."""
    found = _read(connection, JOBS, Job, _KEPT, horizon=horizon)
    known = {job.id for job in found}
    others = sorted({one.job for one in of if one.job is not None} - known)
    return found + _read(connection, JOBS, Job, "id = ANY (:ids)", ids=others)


def unapplied(connection: Connection, limit: int = _ALL) -> tuple[Delivery, ...]:
    """Return the oldest deliveries that are not applied."""
    # The text of the index's condition: SQLite compares it.
    oldest = "applied = 0 ORDER BY seq LIMIT :limit"
    return tuple(map(_delivery, _rows(connection, INBOX, oldest, limit=limit)))


def find_job(connection: Connection, job: int) -> Job | None:
    """Return a job of any age, or None if its row was deleted."""
    found = _read(connection, JOBS, Job, "id = :id", id=job)
    return found[0] if found else None


def read_rows_of(
    connection: Connection, kind: str, record: str, limit: int, until: Instant
) -> tuple[HistoryRow, ...]:
    """Return the newest `limit` history rows of one record that are not after `until`, oldest first."""
    newest = "kind = :kind AND record = :record AND at <= :until ORDER BY seq DESC LIMIT :limit"
    rows = _rows(connection, HISTORY, newest, kind=kind, record=record, until=until, limit=limit)
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


def _rows(connection: Connection, table: Table, where: str, /, **values: Value) -> list[Row]:
    """Return the whole rows for which the condition is true."""
    columns = ", ".join(table.columns)
    sql = f"SELECT {columns} FROM {table.name} WHERE {where}"  # noqa: S608 - only constants
    return [dict(zip(table.columns, row, strict=True)) for row in connection.read(sql, **values)]


def _read(
    connection: Connection, table: Table, kind: type[R], where: str = "true", /, **values: Value
) -> tuple[R, ...]:
    """Return the records for which the condition is true, by key."""
    sql = (
        f"SELECT {table.key}, record FROM {table.name} "  # noqa: S608 - only constants
        f"WHERE {where} ORDER BY {table.key}"
    )
    return tuple(_decoded(connection.read(sql, **values), table, kind))


def _decoded(rows: Iterable[tuple[Any, ...]], table: Table, kind: type[R]) -> Iterable[R]:
    for key, text in rows:
        try:
            yield decode(kind, text)
        except CorruptRecordError as error:
            raise StoreError(f"the row {key} of {table.name} is damaged: {error}") from error


def _cooldowns(connection: Connection) -> tuple[Cooldown, ...]:
    return tuple(map(_cooldown, _rows(connection, COOLDOWNS, "true ORDER BY key")))


def _cooldown(row: dict[str, Any]) -> Cooldown:
    try:
        return Cooldown(**{**row, "failure": FailureClass(row["failure"])})
    except ValueError as error:
        raise StoreError(f"the row {row['key']} of cooldowns is damaged: {error}") from error


def _delivery(row: Row) -> Delivery:
    body = row["body"]
    assert isinstance(body, bytes)
    try:
        return Delivery(
            str(row["id"]), str(row["event"]), float(str(row["received_at"])), decompress(body)
        )
    except ValueError as error:
        raise StoreError(f"the delivery {row['id']} in inbox is damaged: {error}") from error


def _installation(connection: Connection) -> InstallationId:
    known = _get_meta(connection, "installation")
    if known is not None:
        return InstallationId(known)
    made = InstallationId(secrets.token_hex(4))
    _set_meta(connection, "installation", made)
    return made


def _former_installations(connection: Connection) -> tuple[InstallationId, ...]:
    text = _get_meta(connection, "former_installations")
    try:
        return () if text is None else msgspec.json.decode(text, type=tuple[InstallationId, ...])
    except msgspec.DecodeError as error:
        raise StoreError(f"the row former_installations of meta is damaged: {error}") from error


def _get_meta(connection: Connection, key: str) -> str | None:
    found = connection.read("SELECT value FROM meta WHERE key = :key", key=key)
    return str(found[0][0]) if found else None


def _set_meta(connection: Connection, key: str, value: str) -> None:
    connection.upsert(META, [{"key": key, "value": value}])
