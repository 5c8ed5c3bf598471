"""The store's queries, in portable SQL, for use in an open transaction.

Bulk writes, which differ between databases, are in `sqlite_bulk`.
"""

import secrets
from collections.abc import Iterable
from typing import Any

import msgspec
from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Table,
    func,
    not_,
    or_,
    select,
    true,
)

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
from autoscaler.store.rows import Row, read_history
from autoscaler.store.sqlite_bulk import add, insert, insert_unknown, mark_applied, upsert
from autoscaler.store.tables import (
    cooldowns,
    history,
    inbox,
    jobs,
    launch_requests,
    machines,
    meta,
    reruns,
    runners,
    usage,
)

READ_AT_ONCE = 500
"""Maximum number of keys in one query: SQLite allows 32,766 variables, older versions 999."""


def write(connection: Connection, batch: Batch) -> frozenset[DeliveryKey]:
    """Write a batch. Return the keys of the new deliveries."""
    if batch.applied:
        # Before the inserts: a delivery that is accepted after it was applied is a new one.
        mark_applied(connection, list(batch.applied))
    fresh: frozenset[DeliveryKey] = frozenset()
    if batch.inbox:
        fresh = insert_unknown(connection, list(batch.inbox.values()))
    for table, changed in batch.records.items():
        upsert(connection, table, list(changed.values()))
    if batch.history:
        insert(connection, history, batch.history)
    if batch.cooldowns:
        upsert(connection, cooldowns, list(batch.cooldowns.values()))
    if batch.usage:
        add(connection, usage, batch.usage)
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
    kept = select(machines.c.id).where(_kept(machines, horizon))
    of_machines = select(machines.c.launch_request).where(_kept(machines, horizon))
    of_kept = or_(_kept(runners, horizon), runners.c.machine.in_(kept))
    found_runners = _read(connection, runners, of_kept, Runner)
    return SavedState(
        installations=Installations(_installation(connection), _former_installations(connection)),
        heartbeat=None if heartbeat is None else float(heartbeat),
        jobs=_jobs(connection, horizon, found_runners),
        launch_requests=_read(
            connection,
            launch_requests,
            or_(_kept(launch_requests, horizon), launch_requests.c.id.in_(of_machines)),
            LaunchRequest,
        ),
        machines=_read(connection, machines, _kept(machines, horizon), Machine),
        runners=found_runners,
        cooldowns=_cooldowns(connection),
        unapplied=_unapplied(connection),
        arrived_until=None if arrived_until is None else float(arrived_until),
        reruns=_read(connection, reruns, true(), Rerun),
    )


def _jobs(connection: Connection, horizon: Instant, of: Iterable[Runner]) -> tuple[Job, ...]:
    """Return the jobs that have not ended, or ended after `horizon`, and those of these runners."""
    found = _read(connection, jobs, _kept(jobs, horizon), Job)
    known = {job.id for job in found}
    others = sorted({one.job for one in of if one.job is not None} - known)
    for start in range(0, len(others), READ_AT_ONCE):
        some = jobs.c.id.in_(others[start : start + READ_AT_ONCE])
        found += _read(connection, jobs, some, Job)
    return found


def find_job(connection: Connection, job: int) -> Job | None:
    """Return a job of any age, or None if its row was deleted."""
    found = _read(connection, jobs, jobs.c.id == job, Job)
    return found[0] if found else None


def read_rows_of(
    connection: Connection, kind: str, record: str, limit: int, until: Instant
) -> tuple[HistoryRow, ...]:
    """Return the newest `limit` history rows of one record that are not after `until`, oldest first."""
    newest = (
        select(history)
        .where(history.c.kind == kind, history.c.record == record, history.c.at <= until)
        .order_by(history.c.seq.desc())
        .limit(limit)
    )
    rows = connection.execute(newest).mappings().all()
    return tuple(read_history(dict(row)) for row in reversed(rows))


def read_usage(connection: Connection, since: int) -> tuple[Usage, ...]:
    """Return the sums over all days since this one. See `Store.usage`."""
    key = (usage.c.provider, usage.c.sku, usage.c.repository, usage.c.use)
    sums = (func.sum(column) for column in (usage.c.seconds, usage.c.dollars, usage.c.times))
    rows = connection.execute(select(*key, *sums).where(usage.c.day >= since).group_by(*key))
    try:
        return tuple(
            Usage(since, ProviderName(provider), SkuName(sku), repository, MachineUse(use), *found)
            for provider, sku, repository, use, *found in rows
        )
    except ValueError as error:
        raise StoreError(f"a row of usage is damaged: {error}") from error


def _key(table: Table) -> Column[Any]:
    return next(iter(table.primary_key))


def _kept(table: Table, horizon: Instant) -> ColumnElement[bool]:
    return or_(table.c.ended_at.is_(None), table.c.ended_at > horizon)


def _read(
    connection: Connection,
    table: Table,
    where: ColumnElement[bool],
    kind: type[R],
) -> tuple[R, ...]:
    key = _key(table)
    rows = connection.execute(select(key, table.c.record).where(where).order_by(key))
    return tuple(_decoded(((row[0], row[1]) for row in rows), table, kind))


def _decoded(rows: Iterable[tuple[Any, str]], table: Table, kind: type[R]) -> Iterable[R]:
    for key, text in rows:
        try:
            yield decode(kind, text)
        except CorruptRecordError as error:
            raise StoreError(f"the row {key} of {table.name} is damaged: {error}") from error


def _cooldowns(connection: Connection) -> tuple[Cooldown, ...]:
    rows = connection.execute(select(cooldowns).order_by(cooldowns.c.key)).mappings()
    return tuple(_cooldown(dict(row)) for row in rows)


def _cooldown(row: dict[str, Any]) -> Cooldown:
    try:
        return Cooldown(**{**row, "failure": FailureClass(row["failure"])})
    except ValueError as error:
        raise StoreError(f"the row {row['key']} of cooldowns is damaged: {error}") from error


def _unapplied(connection: Connection) -> tuple[Delivery, ...]:
    waiting = select(inbox).where(not_(inbox.c.applied)).order_by(inbox.c.seq)
    return tuple(_delivery(dict(row)) for row in connection.execute(waiting).mappings())


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
    return connection.execute(select(meta.c.value).where(meta.c.key == key)).scalar()


def _set_meta(connection: Connection, key: str, value: str) -> None:
    upsert(connection, meta, [{"key": key, "value": value}])
