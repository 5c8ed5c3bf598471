"""Opens and migrates one PostgreSQL database, and runs transactions on it.

One process uses the database, from one thread. The row of `lease` shows which one: every transaction begins
with its renewal, and so does nothing in a process whose lease another one took over.
"""

import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

import psycopg

from autoscaler.controller.ports.store import StoreError
from autoscaler.model.identifiers import Seconds
from autoscaler.store.database import Answer, Connection
from autoscaler.store.postgresql import lease
from autoscaler.store.postgresql.address import Address
from autoscaler.store.postgresql.connection import PostgresqlConnection
from autoscaler.store.postgresql.errors import (
    OutcomeUnknownError,
    explained,
    is_passing,
    refuses_login,
)
from autoscaler.store.schema import migrate

PATIENCE: Final[Seconds] = 30.0
"""How long `open` waits for a server that does not answer."""

_RETRIES_FOR: Final[Seconds] = 10.0
"""How long a transaction is repeated, such as while the server restarts. GitHub waits as long for a webhook."""

_PAUSE: Final[Seconds] = 0.25
_LOOK_AT_LEASE_EVERY: Final[Seconds] = 1.0

_MIGRATION_LOCK = 0x6770755F72756E
"""The number of the lock under which one process at a time migrates a database."""

_BEGIN = """
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;
SET LOCAL statement_timeout = {statement};
SET LOCAL lock_timeout = 10000;
SET LOCAL idle_in_transaction_session_timeout = 30000;
SET LOCAL synchronous_commit = on;
"""
"""One round trip. Settings of the transaction also work through PgBouncer, which has no sessions of ours."""


class PostgresqlDatabase:
    """An open PostgreSQL database. One thread creates, uses and closes it."""

    def __init__(self, address: Address, patience: Seconds = PATIENCE) -> None:
        """Connect, migrate, and take the lease.

        Raises: StoreError if the server does not answer in time, refuses the user, or cannot be used, or if
        another process uses the database.
        """
        self.title = address.title
        self._address = address
        self._epoch: int | None = None
        self._driver = self._connect(time.monotonic() + patience)
        try:
            self.transaction(self._prepare)
            self._epoch = self._take_lease()
        except BaseException:
            self._driver.close()
            raise

    def transaction(self, do: Callable[[Connection], Answer]) -> Answer:
        """Run `do` in its own transaction and return its answer, once the transaction is durable.

        Repeats it for a few seconds if the server is busy, restarts or fails over, but never after its COMMIT
        was sent.

        Raises: StoreError after a rollback, OutcomeUnknownError if COMMIT had no answer.
        """
        until = time.monotonic() + _RETRIES_FOR
        while True:
            try:
                return self._attempt(do)
            except psycopg.Error as error:
                if not is_passing(error) or time.monotonic() > until:
                    raise explained(self.title, error) from None
            except StoreError as error:
                raise _titled(self.title, error) from error.__cause__
            time.sleep(_PAUSE)

    def shrink(self) -> bool:
        """Return False: the server's autovacuum reuses free space."""
        return False

    def close(self) -> None:
        """Give up the lease and close the session. Idempotent."""
        if self._driver.closed:
            return
        epoch, self._epoch = self._epoch, None
        if epoch is not None:
            with suppress(StoreError):
                self.transaction(lambda connection: lease.release(connection, epoch))
        self._driver.close()

    def _attempt(self, do: Callable[[Connection], Answer]) -> Answer:
        if self._driver.closed:
            self._driver = self._address.connect()
        connection = PostgresqlConnection(self._driver)
        try:
            self._begin()
            answer = do(connection)
        except BaseException:
            with suppress(psycopg.Error):
                self._driver.execute(b"ROLLBACK")
            raise
        try:
            self._driver.execute(b"COMMIT")
        except psycopg.Error as error:
            if error.sqlstate is None or error.sqlstate.startswith(("08", "57")):
                self._driver.close()
                raise OutcomeUnknownError(
                    "the connection was lost during COMMIT, so the outcome is unknown: start again"
                ) from None
            raise
        return answer

    def _begin(self) -> None:
        """Begin a transaction, and renew the lease within it. Raises: StoreError if it was taken over."""
        statement = 0 if self._epoch is None else 30_000
        text = _BEGIN.format(statement=statement)
        if self._epoch is None:
            self._driver.execute(text.encode())
            return
        cursor = self._driver.execute(
            (text + lease.renewal(PostgresqlConnection.clock, self._epoch)).encode()
        )
        while cursor.nextset():
            pass
        if cursor.rowcount != 1:
            raise StoreError("another process took over the store: this one must end")

    def _connect(self, until: float) -> psycopg.Connection:
        while True:
            try:
                return self._address.connect()
            except psycopg.Error as error:
                if refuses_login(error) or time.monotonic() > until:
                    raise explained(self.title, error) from None
            time.sleep(_PAUSE)

    @staticmethod
    def _prepare(connection: Connection) -> None:
        connection.read(f"SELECT pg_advisory_xact_lock({_MIGRATION_LOCK})")
        ((encoding,),) = connection.read("SHOW server_encoding")
        if encoding != "UTF8":
            raise StoreError(
                f"the encoding is {encoding}: create the database with ENCODING 'UTF8'"
            )
        migrate(connection)

    def _take_lease(self) -> int:
        """Return the epoch of this process. A lease that its holder no longer renews is taken when it ends.

        Raises: StoreError once its holder has renewed it.
        """
        holder = f"{socket.gethostname()}, process {os.getpid()}"
        take = partial(lease.acquire, holder=holder)
        first = found = self.transaction(take)
        while not found.taken:
            if found.expires != first.expires:
                raise StoreError(
                    f"{self.title}: in use by another process ({found.holder}): "
                    "only one controller can use a store"
                )
            time.sleep(_LOOK_AT_LEASE_EVERY)
            found = self.transaction(take)
        return found.epoch


def _titled(title: str, error: StoreError) -> StoreError:
    return type(error)(f"{title}: {error}")
