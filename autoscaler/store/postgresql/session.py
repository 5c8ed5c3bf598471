"""A session whose statements end within a limit, also if the server stands still without closing it."""

from typing import Any, Self

import psycopg

from autoscaler.model.identifiers import Seconds


class Session(psycopg.Connection[tuple[Any, ...]]):
    """A psycopg connection. A call that has no answer after `limit` seconds (real time) ends the session.

    TCP's own limits end a session with a host that is gone. But if only the server's process is stopped, its
    kernel still confirms what it gets.
    """

    limit: Seconds | None = None

    @classmethod
    def open(cls, conninfo: str) -> Self:
        """Connect. Each statement is its own transaction. Raises: psycopg.Error."""
        # PgBouncer may pass each transaction to another session, which does not know prepared statements.
        return cls.connect(conninfo, autocommit=True, prepare_threshold=None)

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        """See psycopg. Raises: psycopg.OperationalError, without a code."""
        try:
            return super().wait(gen, interval, self.limit if timeout is None else timeout)
        except psycopg.errors._WaitTimeout:  # noqa: SLF001 - documented for `wait`, and not exported
            self.pgconn.finish()
            raise psycopg.OperationalError(
                f"the server did not answer in {self.limit:g} s"
            ) from None
