"""What the store needs of a database: transactions, and statements within one.

Statements are written once, in SQL that all databases understand. `:name` stands for a value, and
`= ANY (:name)` compares with each value of a list. A `Connection` adapts these to its driver, and writes many
rows in the way that is fastest there.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from autoscaler.controller.ports.store import DeliveryKey
from autoscaler.store.rows import Arrival, Row
from autoscaler.store.tables import Table

Answer = TypeVar("Answer")
Value = str | float | Sequence[str] | Sequence[int] | None


class Connection(Protocol):
    """An open transaction. Only the thread that opened the database uses it. No list of rows is empty."""

    @property
    def types(self) -> Mapping[str, str]:
        """The database's words for those of migrations: types of columns, and `by_key`.

        A table `by_key` has no other order of rows than its primary key.
        """

    @property
    def clock(self) -> str:
        """An expression for the time by the database's own clock, in Unix seconds."""

    def tables(self) -> frozenset[str]:
        """Return the names of all tables."""

    def read(self, sql: str, /, **values: Value) -> list[tuple[Any, ...]]:
        """Return all rows of a query."""

    def write(self, sql: str, /, **values: Value) -> int:
        """Execute one statement. Return the number of rows that it changed."""

    def insert(self, table: Table, rows: Sequence[Row]) -> None:
        """Insert rows that all have the same columns."""

    def upsert(self, table: Table, rows: Sequence[Row]) -> None:
        """Insert complete rows. Replace existing rows with the same key."""

    def add(self, table: Table, rows: Sequence[Row]) -> None:
        """Insert complete rows. Add their numbers to those of existing rows with the same key."""

    def insert_unknown(self, rows: Sequence[Arrival]) -> frozenset[DeliveryKey]:
        """Insert the deliveries whose bodies are new, in this order. Return the keys of the inserted ones."""

    def mark_applied(self, keys: Sequence[DeliveryKey]) -> None:
        """Mark the stored ones of these deliveries as applied."""


class Database(Protocol):
    """An open database. One thread creates, uses and closes it."""

    @property
    def title(self) -> str:
        """What error messages call the database: its file, or its address without a password."""

    def transaction(self, do: Callable[[Connection], Answer]) -> Answer:
        """Run `do` in its own transaction and return its answer, once the transaction is durable.

        Raises: StoreError after a rollback.
        """

    def shrink(self) -> bool:
        """Return some free space to the disk in one short transaction. Return False if none is left.

        Raises: StoreError.
        """

    def close(self) -> None:
        """Release the database. Idempotent."""
