"""Runs the store's statements on a SQLite connection, and writes any number of rows in one step of one.

The driver releases the interpreter lock for every step. Getting it back takes up to 5 ms while the event
loop computes, so writing rows one by one could take seconds. The rows are therefore passed as one JSON
text, and their binary values as one blob with offsets.
"""

import re
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar

import msgspec

from autoscaler.controller.ports.store import DeliveryKey
from autoscaler.store.bodies import compress_all
from autoscaler.store.database import Value
from autoscaler.store.rows import Arrival, Row
from autoscaler.store.tables import Table

_DIGEST = 32
_ANY = re.compile(r"= ANY \((:\w+)\)")

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


class SqliteConnection:
    """The `Connection` of a SQLite database."""

    clock = "((julianday('now') - 2440587.5) * 86400.0)"
    types: ClassVar[Mapping[str, str]] = {
        "serial": "INTEGER",  # An INTEGER that is the primary key numbers the rows.
        "number": "INTEGER",
        "text": "TEXT",
        "real": "DOUBLE",
        "flag": "BOOLEAN",
        "bytes": "BLOB",
        "by_key": "WITHOUT ROWID",
    }

    def __init__(self, driver: sqlite3.Connection) -> None:
        self._driver = driver

    def tables(self) -> frozenset[str]:
        """See `Connection.tables`."""
        found = self.read("SELECT name FROM sqlite_master WHERE type = 'table'")
        return frozenset(str(name) for (name,) in found if not name.startswith("sqlite_"))

    def read(self, sql: str, /, **values: Value) -> list[tuple[Any, ...]]:
        """See `Connection.read`."""
        return self._execute(sql, values).fetchall()

    def write(self, sql: str, /, **values: Value) -> int:
        """See `Connection.write`."""
        return self._execute(sql, values).rowcount

    def insert(self, table: Table, rows: Sequence[Row]) -> None:
        """See `Connection.insert`."""
        self._driver.execute(_insert(table, tuple(rows[0])), (_json(map(_values, rows)),))

    def upsert(self, table: Table, rows: Sequence[Row]) -> None:
        """See `Connection.upsert`."""
        self._driver.execute(_upsert(table, "excluded.{0}"), (_json(map(_values, rows)),))

    def add(self, table: Table, rows: Sequence[Row]) -> None:
        """See `Connection.add`."""
        sql = _upsert(table, f"{table.name}.{{0}} + excluded.{{0}}")
        self._driver.execute(sql, (_json(map(_values, rows)),))

    def insert_unknown(self, rows: Sequence[Arrival]) -> frozenset[DeliveryKey]:
        """See `Connection.insert_unknown`."""
        bodies = compress_all([row.delivery.body for row in rows])
        values, start = [], 0
        for (made, applied), body in zip(rows, bodies, strict=True):
            values.append((made.id, made.event, made.received_at, int(applied), start, len(body)))
            start += len(body)
        digests = b"".join(row.key for row in rows)
        inserted = self._driver.execute(
            _INSERT_DELIVERIES, (_json(values), digests, b"".join(bodies))
        ).rowcount
        if inserted == len(rows):
            return frozenset(row.key for row in rows)
        found = self._driver.execute(_NEWEST_DELIVERIES, (inserted,)).fetchone()[0] or ""
        return frozenset(_cut(bytes.fromhex(found)))

    def mark_applied(self, keys: Sequence[DeliveryKey]) -> None:
        """See `Connection.mark_applied`."""
        self._driver.execute(_MARK_APPLIED, (_json([0] * len(keys)), b"".join(keys)))

    def _execute(self, sql: str, values: Mapping[str, Value]) -> sqlite3.Cursor:
        plain = {
            name: value if isinstance(value, str | int | float | None) else _json(value)
            for name, value in values.items()
        }
        return self._driver.execute(_sqlite(sql), plain)


@cache
def _sqlite(sql: str) -> str:
    """Return a statement whose lists are JSON texts."""
    return _ANY.sub(r"IN (SELECT value FROM json_each(\1))", sql)


@cache
def _insert(table: Table, names: tuple[str, ...]) -> str:
    values = ", ".join(f"json_extract(value, '$[{place}]')" for place in range(len(names)))
    # Without WHERE, SQLite would parse ON CONFLICT as the ON of a join.
    return (
        f"INSERT INTO {table.name} ({', '.join(names)}) "  # noqa: S608 - names of tables of `tables`
        f"SELECT {values} FROM json_each(?1) WHERE true"
    )


@cache
def _upsert(table: Table, value: str) -> str:
    """Return the statement that inserts whole rows, and otherwise sets each column but the keys to `value`."""
    keys, others = table.columns[: table.keys], table.columns[table.keys :]
    changed = ", ".join(f"{name} = {value.format(name)}" for name in others)
    return (
        f"{_insert(table, table.columns)} ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {changed}"
    )


def _values(row: Mapping[str, object]) -> list[object]:
    return list(row.values())


def _json(rows: Iterable[object]) -> str:
    return msgspec.json.encode(list(rows)).decode()


def _cut(digests: bytes) -> Iterable[DeliveryKey]:
    for start in range(0, len(digests), _DIGEST):
        yield DeliveryKey(digests[start : start + _DIGEST])
