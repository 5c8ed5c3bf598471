"""Copies a store into an empty one, such as a SQLite file into a PostgreSQL database, and checks every row."""

from collections.abc import Iterator
from functools import partial
from itertools import zip_longest
from typing import Any, Final

from autoscaler.controller.ports.store import Delivery, StoreError
from autoscaler.store.bodies import decompress
from autoscaler.store.database import Connection, Database
from autoscaler.store.rows import Arrival
from autoscaler.store.schema import USABLE_BY, VERSION
from autoscaler.store.tables import (
    AGENTS,
    HISTORY,
    INBOX,
    LEASE,
    META,
    READINGS,
    TABLES,
    USAGE,
    Table,
)

_AT_ONCE: Final = 1000
"""Maximum number of rows in memory."""

_COPIED: Final = tuple(table for table in TABLES if table not in (LEASE, AGENTS))
_NUMBERED: Final = {INBOX, HISTORY}
"""Their first column is the order of the rows. A database numbers the rows itself."""

_SMALL: Final = {READINGS, USAGE}
"""They are read at once: their keys have several columns."""

Rows = list[tuple[Any, ...]]
_NO_ROWS: Final[Rows] = []


def copy(source: Database, target: Database) -> dict[str, int]:
    """Copy all rows in one transaction of the target. Return their number by table.

    Raises: StoreError if the target is not empty, or has other rows than the source afterwards. It is unchanged
    then.
    """
    return source.transaction(lambda origin: target.transaction(partial(_copy, origin)))


def _copy(source: Connection, target: Connection) -> dict[str, int]:
    for table in _COPIED:
        if any(_pages(target, table)):
            raise StoreError(f"the table {table.name} is not empty: copy into a new store")
    return {table.name: _copy_table(source, target, table) for table in _COPIED}


def _copy_table(source: Connection, target: Connection, table: Table) -> int:
    insert = _insert_deliveries if table is INBOX else partial(_insert_rows, table)
    for page in _pages(source, table):
        insert(target, page)
    number = 0
    pages = _pages(source, table), _pages(target, table)
    for copied, found in zip_longest(*pages, fillvalue=_NO_ROWS):
        if _compared(table, copied) != _compared(table, found):
            raise StoreError(f"the rows of {table.name} differ after they were copied")
        number += len(copied)
    return number


def _pages(connection: Connection, table: Table) -> Iterator[Rows]:
    """Yield all rows of a table in the order of its key, but for the version of the schema."""
    columns, key = ", ".join(table.columns), table.key
    select = f"SELECT {columns} FROM {table.name}"  # noqa: S608 - names of tables of `tables`
    if table in _SMALL:
        keys = ", ".join(table.columns[: table.keys])
        if rows := connection.read(f"{select} ORDER BY {keys}"):
            yield rows
        return
    rows = connection.read(f"{select} ORDER BY {key} LIMIT {_AT_ONCE}")
    while rows:
        if page := [row for row in rows if not (table is META and row[0] in (VERSION, USABLE_BY))]:
            yield page
        rows = connection.read(
            f"{select} WHERE {key} > :after ORDER BY {key} LIMIT {_AT_ONCE}", after=rows[-1][0]
        )


def _compared(table: Table, rows: Rows) -> Rows:
    if table is INBOX:
        # Another version of the library may compress a body to other bytes.
        return [(*row[1:-1], decompress(row[-1])) for row in rows]
    return [row[1:] for row in rows] if table in _NUMBERED else rows


def _insert_rows(table: Table, target: Connection, rows: Rows) -> None:
    first = 1 if table in _NUMBERED else 0
    names = table.columns[first:]
    target.insert(table, [dict(zip(names, row[first:], strict=True)) for row in rows])


def _insert_deliveries(target: Connection, rows: Rows) -> None:
    arrivals = []
    for _, name, _, event, received_at, applied, body in rows:
        try:
            delivery = Delivery(name, event, received_at, decompress(body))
        except ValueError as error:
            raise StoreError(f"the delivery {name} in inbox is damaged: {error}") from error
        arrivals.append(Arrival(delivery, bool(applied)))
    target.insert_unknown(arrivals)
