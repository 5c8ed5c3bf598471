"""Opens and migrates one PostgreSQL database, and runs transactions on it.

Several replicas use the database, each from one thread. The row of `lease` shows which one leads: each of its
transactions begins with the lease's renewal, and so does nothing once another replica took it over.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import psycopg

from autoscaler.controller.ports.replicas import Lease, Replica
from autoscaler.controller.ports.store import StoreError
from autoscaler.controller.replicas.lease_time import LeaseTime
from autoscaler.model.identifiers import Instant, Seconds
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
from autoscaler.store.postgresql.session import Session
from autoscaler.store.schema import migrate

PATIENCE: Final[Seconds] = 30.0
"""How long a command waits for a server that does not answer."""

_RETRIES_FOR: Final[Seconds] = 10.0
"""How long transactions are repeated after the first failure, such as while the server restarts. GitHub waits
as long for a webhook. Then each one fails at once: they would wait for the thread one after the other.
"""

_PAUSE: Final[Seconds] = 0.25

STATEMENT_LIMIT: Final[Seconds] = 10.0
"""How long a statement may take, and how long a transaction may be idle. Shorter than a lease: the transaction
of a leader that stands still locks the lease's row."""

_ANSWER_LIMIT: Final[Seconds] = STATEMENT_LIMIT + 2.0

_MIGRATION_LOCK = 0x6770755F72756E
"""The number of the lock under which one process at a time migrates a database."""

_BEGIN = f"""
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;
SET LOCAL statement_timeout = {{statement:.0f}};
SET LOCAL lock_timeout = {1000 * STATEMENT_LIMIT:.0f};
SET LOCAL idle_in_transaction_session_timeout = {1000 * STATEMENT_LIMIT:.0f};
SET LOCAL synchronous_commit = on;
"""
"""One round trip. Settings of the transaction also work through PgBouncer, which has no sessions of ours."""


class PostgresqlDatabase:
    """An open PostgreSQL database. One thread creates, uses and closes it; any thread asks `leads_for`."""

    def __init__(
        self,
        address: Address,
        patience: Seconds = PATIENCE,
        limit: Seconds = _ANSWER_LIMIT,
        repeats: Seconds = _RETRIES_FOR,
    ) -> None:
        """Connect, and migrate. `limit`: how long the server may take to answer a statement.

        `repeats`: how long transactions are repeated after the first failure.

        Raises: StoreError if the server does not answer in time, refuses the user, or cannot be used.
        """
        self.title = address.title
        self._address = address
        self._limit = limit
        self._repeats = repeats
        self._fails_since: float | None = None
        self._held: lease.Held | None = None
        self._claim = lease.Claim(Replica("", ""))
        self._lease_time = LeaseTime()
        self._driver = self._connect(time.monotonic() + patience)
        try:
            self.transaction(self._prepare)
            self._driver.limit = self._limit
        except BaseException:
            self._driver.close()
            raise

    def transaction(self, do: Callable[[Connection], Answer]) -> Answer:
        """Run `do` in its own transaction and return its answer, once the transaction is durable.

        Repeats it for a few seconds if the server is busy, restarts or fails over, but never after its COMMIT
        was sent.

        Raises: StoreError after a rollback, OutcomeUnknownError if COMMIT had no answer.
        """
        return self._repeated(lambda: self._attempt_if_sure(do), self._repeats)

    def seek(self, replica: Replica, take_on: Instant | None) -> Lease:
        """See `SharedStore.seek`. It repeats nothing. Raises: StoreError."""
        claim = lease.Claim(replica, self._claim.token)

        found = self._repeated(
            lambda: self._attempt(lambda connection: lease.seek(connection, claim, take_on)), 0.0
        )
        if found.mine:
            before, self._held = self._held, lease.Held(found.epoch, found.expires)
            try:
                # An earlier call may have taken it, whose answer was lost: only a renewal says until when.
                self._repeated(lambda: self._attempt(_nothing), self._repeats)
            except StoreError:
                # Without a renewal it does not lead. As a holder, each later transaction would fail.
                self._held = before
                raise
        return found

    def renew(self) -> None:
        """See `SharedStore.renew`. Raises: StoreError."""
        self.transaction(_nothing)

    def leads_for(self) -> Seconds:
        """See `Store.leads_for`."""
        return self._lease_time.left()

    def shrink(self) -> bool:
        """Return False: the server's autovacuum reuses free space."""
        return False

    def close(self) -> None:
        """Give up the lease, in a new session if the last one broke, and close the session. Idempotent."""
        held = self._held if self.leads_for() > 0 else None
        self._held = None
        self._lease_time.lost()
        if held is not None:
            with suppress(StoreError):
                self._repeated(
                    lambda: self._attempt(
                        lambda c: lease.release(c, held.epoch, self._claim.token)
                    ),
                    0.0,
                )
        self._driver.close()

    def _repeated(self, attempt: Callable[[], Answer], seconds: Seconds) -> Answer:
        """Repeat an attempt until `seconds` after the first failure since the last success."""
        while True:
            try:
                answer = attempt()
            except psycopg.Error as error:
                if not is_passing(error) or self._failing_for() >= seconds:
                    raise explained(self.title, error) from None
            except StoreError as error:
                raise _titled(self.title, error) from error.__cause__
            else:
                self._fails_since = None
                return answer
            time.sleep(_PAUSE)

    def _failing_for(self) -> Seconds:
        now = time.monotonic()
        if self._fails_since is None:
            self._fails_since = now
        return now - self._fails_since

    def _attempt_if_sure(self, do: Callable[[Connection], Answer]) -> Answer:
        """Attempt a transaction. A leader does so only while it is sure to lead.

        It could renew its lease otherwise, at a server that took over and does not know the next leader.
        """
        if self._held is not None and self.leads_for() <= 0:
            raise StoreError(
                "the lease was not renewed in time, so another process may have taken over the store"
            )
        return self._attempt(do)

    def _attempt(self, do: Callable[[Connection], Answer]) -> Answer:
        if self._driver.closed:
            self._driver = self._address.connect()
            self._driver.limit = self._limit
        connection = PostgresqlConnection(self._driver)
        sent_at = self._lease_time.now()
        try:
            held = self._begin()
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
        if held is not None:
            self._held = held
            self._lease_time.renewed(sent_at)
        return answer

    def _begin(self) -> lease.Held | None:
        """Begin a transaction, and renew the lease within it. Return the lease, or None without one.

        Raises: StoreError if another process took it, or if the server lacks what this one wrote last: its
        memory is ahead then.
        """
        limit = 0 if self._driver.limit is None else 1000 * STATEMENT_LIMIT
        text = _BEGIN.format(statement=limit)
        if self._held is None:
            self._driver.execute(text.encode())
            return None
        clock = PostgresqlConnection.clock
        text += lease.renewal(clock, self._held, self._claim.token)
        cursor = self._driver.execute(text.encode())
        while cursor.nextset():
            pass
        renewed = cursor.fetchone()
        if renewed is None:
            self._lease_time.lost()
            raise StoreError(
                "another process took over the store, or its server lost the last transactions: "
                "this process must start again from what is stored"
            )
        return lease.Held(self._held.epoch, float(renewed[0]))

    def _connect(self, until: float) -> Session:
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


def _nothing(_: Connection) -> None:
    """Do nothing: the transaction of a leader renews its lease."""


def _titled(title: str, error: StoreError) -> StoreError:
    return type(error)(f"{title}: {error}")
