"""The store's queries, in portable SQL, for use in an open transaction.

Bulk writes differ between databases and go through a `Dialect`.
"""

import secrets
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import msgspec
from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Table,
    delete,
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
from autoscaler.model.identifiers import InstallationId, Instant
from autoscaler.model.installations import Installations
from autoscaler.model.jobs.job import Job
from autoscaler.model.jobs.runners import Runner
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.machines.interruptions import Rerun
from autoscaler.model.machines.launch_requests import LaunchRequest
from autoscaler.model.machines.machine import Machine
from autoscaler.store.batch import Batch
from autoscaler.store.bodies import decompress
from autoscaler.store.codec import CorruptRecordError, R, decode
from autoscaler.store.rows import InboxRow, Row, read_history
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
)

PRUNE_AT_ONCE = 100
"""Maximum number of rows that one transaction of `prune` deletes, so that deliveries do not wait long."""

READ_AT_ONCE = 500
"""Maximum number of keys in one query: SQLite allows 32,766 variables, older versions 999."""


class Dialect(Protocol):
    """The writes that differ between databases, each for many rows at once. No list is empty."""

    def insert_unknown(
        self, connection: Connection, rows: Sequence[InboxRow]
    ) -> frozenset[DeliveryKey]:
        """Insert the deliveries whose bodies are new. Return the keys of the inserted ones."""

    def mark_applied(self, connection: Connection, keys: Sequence[DeliveryKey]) -> None:
        """Mark the stored ones of these deliveries as applied."""

    def insert(self, connection: Connection, table: Table, rows: Sequence[Row]) -> None:
        """Insert rows that all have the same columns."""

    def upsert(self, connection: Connection, table: Table, rows: Sequence[Row]) -> None:
        """Insert complete rows. Replace existing rows with the same primary key."""


def write(connection: Connection, dialect: Dialect, batch: Batch) -> frozenset[DeliveryKey]:
    """Write a batch. Return the keys of the new deliveries."""
    if batch.applied:
        # Before the inserts: a delivery that is accepted after it was applied is a new one.
        dialect.mark_applied(connection, list(batch.applied))
    fresh: frozenset[DeliveryKey] = frozenset()
    if batch.inbox:
        fresh = dialect.insert_unknown(connection, list(batch.inbox.values()))
    for table, changed in batch.records.items():
        dialect.upsert(connection, table, list(changed.values()))
    if batch.history:
        dialect.insert(connection, history, batch.history)
    if batch.cooldowns:
        dialect.upsert(connection, cooldowns, list(batch.cooldowns.values()))
    if batch.installations is not None:
        former = msgspec.json.encode(batch.installations.former).decode()
        _set_meta(connection, dialect, "installation", batch.installations.own)
        _set_meta(connection, dialect, "former_installations", former)
    if batch.heartbeat is not None:
        _set_meta(connection, dialect, "heartbeat", repr(batch.heartbeat))
    if batch.arrived_until is not None:
        _set_meta(connection, dialect, "arrived_until", repr(batch.arrived_until))
    return fresh


def load(connection: Connection, dialect: Dialect, horizon: Instant) -> SavedState:
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
        installations=Installations(
            _installation(connection, dialect), _former_installations(connection)
        ),
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


def prune_records(connection: Connection, before: Instant) -> int:
    """Delete some records that ended before this moment. Return their number; 0 if none are left."""
    # A machine's launch request and runners are kept as long as the machine.
    used = select(machines.c.id).where(machines.c.launch_request == launch_requests.c.id).exists()
    carried = select(machines.c.id).where(machines.c.id == runners.c.machine).exists()
    return (
        _prune_some(connection, "job", jobs, jobs.c.ended_at < before)
        or _prune_some(connection, "machine", machines, machines.c.ended_at < before)
        or _prune_some(
            connection,
            "launch_request",
            launch_requests,
            launch_requests.c.ended_at < before,
            not_(used),
        )
        or _prune_some(connection, "runner", runners, runners.c.ended_at < before, not_(carried))
        or _prune_some(connection, "rerun", reruns, reruns.c.ended_at < before)
    )


def prune_deliveries(connection: Connection, before: Instant) -> int:
    """Delete some old applied deliveries. Return their number; 0 if none are left."""
    some = select(inbox.c.seq).where(inbox.c.received_at < before, inbox.c.applied)
    gone = connection.execute(delete(inbox).where(inbox.c.seq.in_(some.limit(PRUNE_AT_ONCE))))
    return gone.rowcount


def _prune_some(
    connection: Connection, kind: str, table: Table, *where: ColumnElement[bool]
) -> int:
    key = _key(table)
    keys = list(connection.execute(select(key).where(*where).limit(PRUNE_AT_ONCE)).scalars())
    if keys:
        names = [str(value) for value in keys]
        connection.execute(
            delete(history).where(history.c.kind == kind, history.c.record.in_(names))
        )
        connection.execute(delete(table).where(key.in_(keys)))
    return len(keys)


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


def _installation(connection: Connection, dialect: Dialect) -> InstallationId:
    known = _get_meta(connection, "installation")
    if known is not None:
        return InstallationId(known)
    made = InstallationId(secrets.token_hex(4))
    _set_meta(connection, dialect, "installation", made)
    return made


def _former_installations(connection: Connection) -> tuple[InstallationId, ...]:
    text = _get_meta(connection, "former_installations")
    try:
        return () if text is None else msgspec.json.decode(text, type=tuple[InstallationId, ...])
    except msgspec.DecodeError as error:
        raise StoreError(f"the row former_installations of meta is damaged: {error}") from error


def _get_meta(connection: Connection, key: str) -> str | None:
    return connection.execute(select(meta.c.value).where(meta.c.key == key)).scalar()


def _set_meta(connection: Connection, dialect: Dialect, key: str, value: str) -> None:
    dialect.upsert(connection, meta, [{"key": key, "value": value}])
