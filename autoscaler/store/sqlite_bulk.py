"""Writes any number of rows in one step of a SQLite statement.

The driver releases the interpreter lock for every step. Getting it back takes up to 5 ms while the event
loop computes, so writing rows one by one could take seconds. The rows are therefore passed as one JSON
text, and their binary values as one blob with offsets. Statements go directly to the driver, because
SQLAlchemy adds 50 us to each, during which the event loop stops. No list of rows is empty.
"""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from functools import cache

import msgspec
from sqlalchemy import Connection, Table

from autoscaler.controller.ports.store import DeliveryKey
from autoscaler.store.bodies import compress_all
from autoscaler.store.rows import Arrival, Row

_DIGEST = 32

_INSERT_DELIVERIES = """
INSERT INTO inbox (id, event, received_at, applied, body_sha256, body)
SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
  json_extract(value, '$[3]'), substr(?2, key * 32 + 1, 32),
  substr(?3, json_extract(value, '$[4]') + 1, json_extract(value, '$[5]'))
FROM json_each(?1) WHERE true
ON CONFLICT (body_sha256) DO NOTHING
"""
_NEWEST_DELIVERIES = """
SELECT group_concat(hex(body_sha256), '') FROM inbox
WHERE seq > (SELECT max(seq) FROM inbox) - ?
"""
"""The last inserted rows: a new row gets the largest `seq` plus one (sqlite.org/autoinc.html), and there is
one writer."""

_MARK_APPLIED = """
UPDATE inbox SET applied = 1
WHERE body_sha256 IN (SELECT substr(?2, key * 32 + 1, 32) FROM json_each(?1))
"""


def insert_unknown(connection: Connection, rows: Sequence[Arrival]) -> frozenset[DeliveryKey]:
    """Insert the deliveries whose bodies are new. Return the keys of the inserted ones."""
    bodies = compress_all([row.delivery.body for row in rows])
    values, start = [], 0
    for (made, applied), body in zip(rows, bodies, strict=True):
        values.append((made.id, made.event, made.received_at, int(applied), start, len(body)))
        start += len(body)
    digests = b"".join(row.key for row in rows)
    driver = _driver(connection)
    inserted = driver.execute(
        _INSERT_DELIVERIES, (_json(values), digests, b"".join(bodies))
    ).rowcount
    if inserted == len(rows):
        return frozenset(row.key for row in rows)
    found = driver.execute(_NEWEST_DELIVERIES, (inserted,)).fetchone()[0] or ""
    return frozenset(_cut(bytes.fromhex(found)))


def mark_applied(connection: Connection, keys: Sequence[DeliveryKey]) -> None:
    """Mark the stored ones of these deliveries as applied."""
    _driver(connection).execute(_MARK_APPLIED, (_json([0] * len(keys)), b"".join(keys)))


def insert(connection: Connection, table: Table, rows: Sequence[Row]) -> None:
    """Insert rows that all have the same columns."""
    _driver(connection).execute(_insert(table, tuple(rows[0])), (_json(map(_values, rows)),))


def upsert(connection: Connection, table: Table, rows: Sequence[Row]) -> None:
    """Insert complete rows. Replace existing rows with the same primary key."""
    _upsert(connection, table, rows, "{0} = excluded.{0}")


def add(connection: Connection, table: Table, rows: Sequence[Row]) -> None:
    """Insert complete rows. Add their values to those of existing rows with the same primary key."""
    _upsert(connection, table, rows, "{0} = {0} + excluded.{0}")


def _upsert(connection: Connection, table: Table, rows: Sequence[Row], change: str) -> None:
    names = tuple(rows[0])
    key = [column.name for column in table.primary_key]
    changed = ", ".join(change.format(name) for name in names if name not in key)
    sql = f"{_insert(table, names)} ON CONFLICT ({', '.join(key)}) DO UPDATE SET {changed}"
    _driver(connection).execute(sql, (_json(map(_values, rows)),))


def _driver(connection: Connection) -> sqlite3.Connection:
    driver = connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    return driver


@cache
def _insert(table: Table, names: tuple[str, ...]) -> str:
    values = ", ".join(f"json_extract(value, '$[{place}]')" for place in range(len(names)))
    # Without WHERE, SQLite would parse ON CONFLICT as the ON of a join.
    return (
        f"INSERT INTO {table.name} ({', '.join(names)}) "  # noqa: S608 - names of tables of `tables`
        f"SELECT {values} FROM json_each(?1) WHERE true"
    )


def _values(row: Mapping[str, object]) -> list[object]:
    return list(row.values())


def _json(rows: Iterable[object]) -> str:
    return msgspec.json.encode(list(rows)).decode()


def _cut(digests: bytes) -> Iterable[DeliveryKey]:
    for start in range(0, len(digests), _DIGEST):
        yield DeliveryKey(digests[start : start + _DIGEST])
