"""Opens, locks and migrates one SQLite file, and runs transactions on it.

One process uses the file, from one thread. Code that is specific to SQLite (pragmas, the file and its
lock, error texts) is here and in `sqlite_bulk`.
"""

import fcntl
import os
import sqlite3
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Connection, Engine, NullPool, create_engine, event
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from autoscaler.controller.ports.store import StoreError
from autoscaler.store.schema import migrate

Answer = TypeVar("Answer")

_OWNER_ONLY = 0o600
_MAX_WAL_BYTES = 16 * 2**20
"""Largest size of the write-ahead log between writes."""

_PAGES_AT_ONCE = 256
"""Maximum number of 4 KB pages that one transaction frees."""

_DAMAGED = "the file is damaged: keep a copy, then restore a backup"
_MAX_FINDING = 200

_ERROR_WORDS = {
    "SQLITE_FULL": "the disk is full: make room on it, then start again",
    # Opening a store creates the index of the write-ahead log, and there is no room for it.
    "SQLITE_IOERR_SHMSIZE": "the disk is full, or a quota or size limit is reached: make room on "
    "it, then start again",
    "SQLITE_READONLY": "the file or its folder is read-only: let this user write to both",
    "SQLITE_CORRUPT": _DAMAGED,
    "SQLITE_NOTADB": "the file is not a SQLite database: it belongs to another program, or it is "
    "damaged: name another file, or restore a backup",
    "SQLITE_IOERR": "the disk failed to read or write: check its errors, quotas and size limits",
    "SQLITE_BUSY": "another program has locked the file: stop that program",
    "SQLITE_LOCKED": "another program has locked the file: stop that program",
    "SQLITE_CANTOPEN": "the file cannot be opened: check its folder and permissions",
}


class SqliteFile:
    """An open SQLite file. One thread creates, uses and closes it."""

    def __init__(self, path: Path) -> None:
        """Open or create the file, check all of its pages, and migrate it.

        Raises: StoreError. File and lock are released then, and a damaged file is unchanged.
        """
        self.path = path
        with ExitStack() as undo:
            undo.callback(os.close, self._lock())
            self._keep_private()
            self._refuse_damage()
            engine = _engine(path)
            undo.callback(engine.dispose)
            try:
                self._connection = undo.enter_context(engine.connect())
            except SQLAlchemyError as error:
                raise self._explained(error) from error
            self.transaction(migrate)
            self._release = undo.pop_all()

    def transaction(self, do: Callable[[Connection], Answer]) -> Answer:
        """Run `do` in its own transaction and return its answer, once the transaction is durable.

        Raises: StoreError after a rollback.
        """
        driver = self._driver()
        try:
            # SQLAlchemy would take 40 us to begin and commit, during which the event loop stops.
            driver.execute("BEGIN IMMEDIATE")
            try:
                answer = do(self._connection)
                driver.execute("COMMIT")
            except BaseException:
                # After some errors SQLite has already rolled back; then this does nothing.
                driver.rollback()
                raise
        except (SQLAlchemyError, sqlite3.Error) as error:
            raise self._explained(error) from error
        except StoreError as error:
            raise StoreError(f"{self.path}: {error}") from error
        return answer

    def shrink(self) -> bool:
        """Return some of the file's free pages to the disk. Return False if none are left.

        One call is one short transaction, so that deliveries do not wait long.

        Raises: StoreError.
        """
        try:
            free = self._driver().execute("PRAGMA freelist_count").fetchone()[0]
            if free:
                # Each step of this pragma frees one page, and only executescript runs all steps.
                vacuum = f"PRAGMA incremental_vacuum({_PAGES_AT_ONCE})"
                self._driver().executescript(f"BEGIN IMMEDIATE; {vacuum}; COMMIT")
        except sqlite3.Error as error:
            raise self._explained(error) from error
        return bool(free > _PAGES_AT_ONCE)

    def close(self) -> None:
        """Release the file and its lock. Idempotent."""
        self._release.close()

    def _driver(self) -> sqlite3.Connection:
        driver = self._connection.connection.driver_connection
        assert isinstance(driver, sqlite3.Connection)
        return driver

    def _lock(self) -> int:
        # The lock is a file of its own: closing any descriptor of the database drops SQLite's locks.
        lock = self.path.with_name(self.path.name + ".lock")
        try:
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _OWNER_ONLY)
        except OSError as error:
            raise StoreError(
                f"{self.path}: {lock} cannot be opened: {error.strerror}; the folder must exist, "
                "have free space, and let this user write"
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            raise StoreError(
                f"{self.path}: in use by another process: only one process can use a SQLite store"
            ) from error
        return descriptor

    def _keep_private(self) -> None:
        try:
            # SQLite creates its -wal and -shm files with the mode of this file.
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _OWNER_ONLY))
            self.path.chmod(_OWNER_ONLY)
            # An earlier process or another tool may have left such files with another mode.
            for suffix in ("-wal", "-shm", ".lock"):
                with suppress(FileNotFoundError):
                    self.path.with_name(self.path.name + suffix).chmod(_OWNER_ONLY)
        except OSError as error:
            raise StoreError(
                f"{self.path}: cannot be opened: {error.strerror}; it must be a file that this "
                "user owns and may write to"
            ) from error

    def _refuse_damage(self) -> None:
        """Read the whole file (1.8 s for 1.1 GB in memory), because a query reads only the pages it needs.

        Raises: StoreError, before anything is written: a connection that may write copies the write-ahead
        log into the file when it closes (sqlite.org/wal.html).
        """
        if not self.path.stat().st_size:
            return
        # A journal is left by a crash of the file's creation. Only a connection that may write can apply it.
        unfinished = self.path.with_name(self.path.name + "-journal").exists()
        address = f"{self.path.absolute().as_uri()}?mode={'rw' if unfinished else 'ro'}"
        try:
            with closing(sqlite3.connect(address, uri=True)) as driver:
                finding = driver.execute("PRAGMA integrity_check(1)").fetchone()[0]
        except sqlite3.Error as error:
            raise self._explained(error) from error
        if finding != "ok":
            shown = " ".join(finding.split())[:_MAX_FINDING]
            raise StoreError(f"{self.path}: {_DAMAGED} (integrity_check: {shown})")

    def _explained(self, error: SQLAlchemyError | sqlite3.Error) -> StoreError:
        cause = error.orig if isinstance(error, DBAPIError) else error
        name = getattr(cause, "sqlite_errorname", "")
        for prefix, words in _ERROR_WORDS.items():
            if name.startswith(prefix):
                return StoreError(f"{self.path}: {words} ({name})")
        return StoreError(
            f"{self.path}: {cause if isinstance(cause, sqlite3.Error) else type(error).__name__}"
        )


def _engine(path: Path) -> Engine:
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        poolclass=NullPool,
        # Error messages must not show bodies and records.
        hide_parameters=True,
        # `transaction` begins and ends them.
        isolation_level="AUTOCOMMIT",
    )
    event.listen(engine, "connect", _prepare)
    return engine


def _prepare(connection: sqlite3.Connection, _record: object) -> None:
    # sqlite3 would begin transactions too late, and begin none before CREATE TABLE.
    connection.isolation_level = None
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
