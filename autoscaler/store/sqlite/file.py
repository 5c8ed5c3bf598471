"""Opens and migrates one SQLite file, and runs transactions on it.

One process uses the file, from one thread.
"""

import os
import sqlite3
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from pathlib import Path

from autoscaler.controller.ports.store import StoreError
from autoscaler.store.database import Answer, Connection
from autoscaler.store.schema import migrate
from autoscaler.store.sqlite.access import OWNER_ONLY, explained, lock, refuse_damage
from autoscaler.store.sqlite.connection import SqliteConnection

_MAX_WAL_BYTES = 16 * 2**20
"""Largest size of the write-ahead log between writes."""

_PAGES_AT_ONCE = 256
"""Maximum number of 4 KB pages that one transaction frees."""


class SqliteFile:
    """An open SQLite file. One thread creates, uses and closes it."""

    def __init__(self, path: Path) -> None:
        """Open or create the file, check all of its pages, and migrate it.

        Raises: StoreError. File and lock are released then, and a damaged file is unchanged.
        """
        self.path = path
        with ExitStack() as undo:
            undo.callback(os.close, lock(path))
            self._keep_private()
            if path.stat().st_size:
                refuse_damage(path)
            try:
                self._driver = undo.enter_context(closing(_connect(path)))
                _prepare(self._driver)
            except sqlite3.Error as error:
                raise explained(self.path, error) from error
            self._connection = SqliteConnection(self._driver)
            self.transaction(migrate)
            self._release = undo.pop_all()

    @property
    def title(self) -> str:
        """The file."""
        return str(self.path)

    def transaction(self, do: Callable[[Connection], Answer]) -> Answer:
        """Run `do` in its own transaction and return its answer, once the transaction is durable.

        Raises: StoreError after a rollback.
        """
        driver = self._driver
        try:
            driver.execute("BEGIN IMMEDIATE")
            try:
                answer = do(self._connection)
                driver.execute("COMMIT")
            except BaseException:
                # After some errors SQLite has already rolled back; then this does nothing.
                driver.rollback()
                raise
        except sqlite3.Error as error:
            raise explained(self.path, error) from error
        except StoreError as error:
            raise StoreError(f"{self.path}: {error}") from error
        return answer

    def shrink(self) -> bool:
        """Return some of the file's free pages to the disk. Return False if none are left.

        One call is one short transaction, so that deliveries do not wait long.

        Raises: StoreError.
        """
        try:
            free = self._driver.execute("PRAGMA freelist_count").fetchone()[0]
            if free:
                # Each step of this pragma frees one page, and only executescript runs all steps.
                vacuum = f"PRAGMA incremental_vacuum({_PAGES_AT_ONCE})"
                self._driver.executescript(f"BEGIN IMMEDIATE; {vacuum}; COMMIT")
        except sqlite3.Error as error:
            raise explained(self.path, error) from error
        return bool(free > _PAGES_AT_ONCE)

    def close(self) -> None:
        """Release the file and its lock. Idempotent."""
        self._release.close()

    def _keep_private(self) -> None:
        try:
            # SQLite creates its -wal and -shm files with the mode of this file.
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, OWNER_ONLY))
            self.path.chmod(OWNER_ONLY)
            # An earlier process or another tool may have left such files with another mode.
            for suffix in ("-wal", "-shm", ".lock"):
                with suppress(FileNotFoundError):
                    self.path.with_name(self.path.name + suffix).chmod(OWNER_ONLY)
        except OSError as error:
            raise StoreError(
                f"{self.path}: cannot be opened: {error.strerror}; it must be a file that this "
                "user owns and may write to"
            ) from error


def _connect(path: Path) -> sqlite3.Connection:
    # sqlite3 would begin transactions too late, and begin none before CREATE TABLE: `transaction` begins them.
    return sqlite3.connect(path, isolation_level=None)


def _prepare(connection: sqlite3.Connection) -> None:
    if connection.execute("PRAGMA page_count").fetchone()[0] == 0:
        # Has an effect only before the first write to a new file, and writes to any other file.
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise sqlite3.OperationalError(
            f"this file system does not support a write-ahead log (journal mode {mode}): "
            "put the store on a local disk"
        )
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(f"PRAGMA journal_size_limit = {_MAX_WAL_BYTES}")
