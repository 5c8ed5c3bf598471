"""One SQLite file, held by one process: opened, locked, brought up to date, and spoken to.

Used from one thread only. Everything that is SQLite's own (pragmas, the file and its lock, error
words) stands here, the bulk writes in `sqlite_bulk`; it decides nothing about what is written.
"""

import fcntl
import os
import sqlite3
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

import structlog
from sqlalchemy import Connection, Engine, NullPool, create_engine, event
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from autoscaler.controller.ports.store import StoreError
from autoscaler.store.schema import migrate

Answer = TypeVar("Answer")

_BEGIN = "BEGIN IMMEDIATE"
_OWNER_ONLY = 0o600
_INCREMENTAL = 2
_WAL_AT_MOST = 16 * 2**20
"""Bytes that the write-ahead log keeps on disk between writes. A VACUUM makes it as large as the file."""

_PAGES_AT_ONCE = 256
"""Of 4 KB, freed in one transaction."""

_DAMAGED = ("SQLITE_CORRUPT", "SQLITE_NOTADB")

_FIX = (
    "the store works without it, and each start tries again: make room of twice the file's size in "
    "its folder, and of its size in the folder for temporary files"
)

_log = structlog.get_logger(__name__)

_ERROR_WORDS = {
    "SQLITE_FULL": "the disk is full: make room on it, then start again",
    # No room for the write-ahead log's index, which opening a store begins with.
    "SQLITE_IOERR_SHMSIZE": "the disk is full, or a quota or limit of size is reached: make room on "
    "it, then start again",
    "SQLITE_READONLY": "the file or its folder is read-only: let this user write to both",
    "SQLITE_CORRUPT": "the file is damaged: keep a copy, then restore a backup",
    "SQLITE_NOTADB": "the file is not a SQLite database: it is another program's, or damaged and "
    "a backup is to be restored",
    "SQLITE_IOERR": "the disk failed to read or write: look at its errors, quotas and limits of size",
    "SQLITE_BUSY": "another program holds the file locked: end it",
    "SQLITE_LOCKED": "another program holds the file locked: end it",
    "SQLITE_CANTOPEN": "the file cannot be opened: look at its folder and permissions",
}


class SqliteFile:
    """An open file. Made, used and closed in the same thread."""

    def __init__(self, path: Path) -> None:
        """Open or create the file and migrate it. Raises StoreError and holds nothing then."""
        self.path = path
        with ExitStack() as undo:
            undo.callback(os.close, self._lock())
            self._keep_private()
            engine = _engine(path)
            undo.callback(engine.dispose)
            try:
                self._connection = undo.enter_context(engine.connect())
            except SQLAlchemyError as error:
                raise self._explained(error) from error
            self._make_shrinkable()
            self.transaction(migrate)
            self._release = undo.pop_all()

    def transaction(self, do: Callable[[Connection], Answer]) -> Answer:
        """Run `do` in a transaction of its own: durable on return, undone if StoreError is raised."""
        return self._explaining(partial(self._in_transaction, do))

    def bulk_transaction(self, do: Callable[[Connection], Answer]) -> Answer:
        """Do as `transaction` does, for a `do` that speaks to the driver alone, as `SqliteDialect` does.

        SQLAlchemy takes some 40 us to begin and to commit, of which the event loop has nothing.
        """
        return self._explaining(partial(self._in_bulk, do))

    def _in_transaction(self, do: Callable[[Connection], Answer]) -> Answer:
        with self._connection.begin():
            return do(self._connection)

    def _in_bulk(self, do: Callable[[Connection], Answer]) -> Answer:
        driver = self._driver()
        driver.execute(_BEGIN)
        try:
            answer = do(self._connection)
            driver.execute("COMMIT")
        except BaseException:
            # SQLite itself has undone it after some errors.
            driver.rollback()
            raise
        return answer

    def _explaining(self, run: Callable[[], Answer]) -> Answer:
        try:
            return run()
        except (SQLAlchemyError, sqlite3.Error) as error:
            raise self._explained(error) from error
        except StoreError as error:
            raise StoreError(f"{self.path}: {error}") from error

    def shrink(self) -> bool:
        """Give some of the file's free pages back to the disk; False when there are none left.

        A short transaction, so that deliveries need not wait long. Raises StoreError.
        """
        try:
            free = self._driver().execute("PRAGMA freelist_count").fetchone()[0]
            if free:
                # A step frees a page, and only a script is run to its end.
                vacuum = f"PRAGMA incremental_vacuum({_PAGES_AT_ONCE})"
                self._driver().executescript(f"BEGIN IMMEDIATE; {vacuum}; COMMIT")
        except sqlite3.Error as error:
            raise self._explained(error) from error
        return bool(free > _PAGES_AT_ONCE)

    def close(self) -> None:
        """Release file and lock. Idempotent."""
        self._release.close()

    def _driver(self) -> sqlite3.Connection:
        driver = self._connection.connection.driver_connection
        assert isinstance(driver, sqlite3.Connection)
        return driver

    def _make_shrinkable(self) -> None:
        """Rewrite a file of an earlier release, once: only then can its pages be given back.

        The store works without: only a damaged file is an error here. A file that cannot be used for
        another reason fails at the migration. Takes up to twice the file's size on disk for a while
        (sqlite.org/lang_vacuum.html).
        """
        path = str(self.path)
        try:
            if self._driver().execute("PRAGMA auto_vacuum").fetchone()[0] == _INCREMENTAL:
                return
            _log.info("store_compacting", path=path, bytes=self.path.stat().st_size)
            self._driver().execute("PRAGMA auto_vacuum = INCREMENTAL")
            self._driver().execute("VACUUM")
            _log.info("store_compacted", path=path, bytes=self.path.stat().st_size)
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorname", "").startswith(_DAMAGED):
                raise self._explained(error) from error
            _log.warning("store_not_compacted", path=path, reason=str(error), fix=_FIX)

    def _lock(self) -> int:
        # Never on the database file itself: closing any descriptor of it drops SQLite's locks.
        lock = self.path.with_name(self.path.name + ".lock")
        try:
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _OWNER_ONLY)
        except OSError as error:
            raise StoreError(
                f"{self.path}: {lock} cannot be opened: {error.strerror}; the folder must be there, "
                "with room for it, and let this user write"
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            raise StoreError(
                f"{self.path}: in use by another process: a SQLite store takes one at a time"
            ) from error
        return descriptor

    def _keep_private(self) -> None:
        try:
            # SQLite gives its -wal and -shm files the mode of this one.
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _OWNER_ONLY))
            self.path.chmod(_OWNER_ONLY)
            # Those that an earlier process or another tool left have a mode of their own.
            for suffix in ("-wal", "-shm", ".lock"):
                with suppress(FileNotFoundError):
                    self.path.with_name(self.path.name + suffix).chmod(_OWNER_ONLY)
        except OSError as error:
            raise StoreError(
                f"{self.path}: cannot be opened: {error.strerror}; it must be a file of this user's "
                "own that it may write to"
            ) from error

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
        # Bodies and records must not appear in error messages.
        hide_parameters=True,
    )
    event.listen(engine, "connect", _prepare)
    event.listen(engine, "begin", _begin)
    return engine


def _prepare(connection: sqlite3.Connection, _record: object) -> None:
    # sqlite3 would begin transactions too late, and not at all before CREATE TABLE.
    connection.isolation_level = None
    # Before anything is written to a new file, or it has no effect.
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise sqlite3.OperationalError(f"this file system allows no WAL (journal mode {mode})")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(f"PRAGMA journal_size_limit = {_WAL_AT_MOST}")


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql(_BEGIN)
