"""Backs up, restores and checks the SQLite file of a store.

A backup or a check may run beside the controller.
"""

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from autoscaler.controller.ports.store import StoreError
from autoscaler.model.identifiers import Instant
from autoscaler.store.schema import NEWEST_SCHEMA, read_schema, read_usable_by, refuse_newer
from autoscaler.store.sqlite.access import (
    OWNER_ONLY,
    explained,
    lock,
    open_for_reading,
    refuse_damage,
)
from autoscaler.store.sqlite.connection import SqliteConnection


@dataclass(frozen=True, slots=True)
class Condition:
    """The condition of a store without damage. `written_at` is its last heartbeat, None if it has none."""

    file: Path
    schema: str
    newest_schema: str
    written_at: Instant | None
    bytes: int
    free_bytes: int
    """Free bytes of the file's disk, for this user."""


class SqliteUpkeep:
    """Cares for the file of one store."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def check(self, backup: Path | None = None) -> Condition:
        """Return the condition of the store, or of a backup. Changes nothing.

        Raises: StoreError if the file is missing, damaged, newer than this version, or not a store's.
        """
        path = backup or self._path
        refuse_damage(path)
        schema, written_at = _identify(path)
        log = path.with_name(path.name + "-wal")
        size = path.stat().st_size + (log.stat().st_size if log.exists() else 0)
        free = shutil.disk_usage(path.absolute().parent).free
        return Condition(path, schema, NEWEST_SCHEMA, written_at, size, free)

    def backup(self, target: Path) -> Condition:
        """Copy the store to `target`, which appears only when it is complete. Return the copy's condition.

        The copy is one transaction: webhooks are accepted meanwhile. An earlier file there is replaced.
        Raises: StoreError, and `target` is as before.
        """
        if target.exists() and self._path.exists() and target.samefile(self._path):
            raise StoreError(f"{target}: is the store itself: name another file")
        with _copy(self._path, target) as copy:
            found = self.check(copy)
            copy.replace(target)
        self._stamp()
        return replace(found, file=target)

    def last_backup(self) -> Instant | None:
        """Return when `backup` last made a backup of the store, or None if it never did."""
        try:
            return self._stamp_file.stat().st_mtime
        except OSError:
            return None

    @property
    def _stamp_file(self) -> Path:
        """The empty file whose age is that of the last backup."""
        return self._path.with_name(f"{self._path.name}.last-backup")

    def _stamp(self) -> None:
        """Note that a backup was made. Without a right to write there, the backup is as good without a note."""
        with suppress(OSError):
            self._stamp_file.touch(OWNER_ONLY)
            self._own(self._stamp_file)

    def restore(self, backup: Path, now: datetime) -> Path | None:
        """Replace the store by a backup. Return the file that keeps the replaced store, None if there was none.

        If it ends early, also by a kill, the store is complete: the replaced one or the backup. Only a damaged
        store can then lack its write-ahead log, which the kept file still has.
        Raises: StoreError if a program uses the store, or the backup cannot be used.
        """
        descriptor = lock(self._path)
        try:
            self._own(descriptor)
            self.check(backup)
            with _copy(backup, self._path) as copy:
                self._own(copy)
                if self._path.exists():
                    self._merge_log()
                kept = self._keep(now)
                # SQLite would apply the log of a damaged store to the new one.
                for suffix in ("-wal", "-shm", "-journal"):
                    self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
                copy.replace(self._path)
        except OSError as error:
            raise StoreError(f"{self._path}: cannot be replaced: {error.strerror}") from error
        finally:
            os.close(descriptor)
        return kept

    def _own(self, file: int | Path) -> None:
        """Give a file that root made to the user who runs the controller: the owner of the folder."""
        if os.geteuid() == 0:
            folder = self._path.absolute().parent.stat()
            os.chown(file, folder.st_uid, folder.st_gid)

    def _merge_log(self) -> None:
        """Copy the write-ahead log into the store, and delete it: one rename can then replace the whole store.

        A damaged store keeps its log. Raises: StoreError if another program reads it, or the disk is full.
        """
        try:
            refuse_damage(self._path)
        except StoreError:
            return
        try:
            with closing(sqlite3.connect(self._path)) as store:
                busy, _, _ = store.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except sqlite3.Error as error:
            raise explained(self._path, error) from error
        if busy:
            raise StoreError(f"{self._path}: another program reads the file: stop that program")

    def _keep(self, now: datetime) -> Path | None:
        """Give the store a second name, and the log that a damaged one still has."""
        if not self._path.exists():
            return None
        kept = self._path.with_name(
            f"{self._path.name}.replaced-{now.astimezone(UTC):%Y%m%d-%H%M%S}"
        )
        for suffix in ("", "-wal", "-journal"):
            file = self._path.with_name(self._path.name + suffix)
            if file.exists():
                kept.with_name(kept.name + suffix).hardlink_to(file)
        _sync(kept.parent)
        return kept


@contextmanager
def _copy(source: Path, target: Path) -> Iterator[Path]:
    """Copy a database into a file beside `target`, durably; the caller moves it there. Raises StoreError."""
    folder = target.absolute().parent
    try:
        with tempfile.TemporaryDirectory(dir=folder, prefix=f".{target.name}.") as scratch:
            copy = Path(scratch) / target.name
            copy.touch(OWNER_ONLY)
            with (
                closing(open_for_reading(source)) as origin,
                closing(sqlite3.connect(copy)) as made,
            ):
                origin.backup(made)
                # One file without a write-ahead log, so that it can be read where nothing can be written.
                made.execute("PRAGMA journal_mode = DELETE")
            _sync(copy)
            yield copy
            _sync(folder)
    except sqlite3.Error as error:
        raise explained(source, error) from error
    except OSError as error:
        raise StoreError(f"{target}: cannot be written: {error.strerror}") from error


def _identify(path: Path) -> tuple[str, Instant | None]:
    """Return the schema and the last heartbeat. Raises StoreError for another database than a store."""
    try:
        with closing(open_for_reading(path)) as driver:
            connection = SqliteConnection(driver)
            schema = read_schema(connection)
            if schema is None:
                raise StoreError(f"{path}: not a store of this program: name another file")
            usable_by = read_usable_by(connection)
            heartbeat = driver.execute("SELECT value FROM meta WHERE key = 'heartbeat'").fetchone()
    except sqlite3.Error as error:
        raise explained(path, error) from error
    try:
        refuse_newer(schema, usable_by)
    except StoreError as error:
        raise StoreError(f"{path}: {error}") from error
    return schema, None if heartbeat is None else float(heartbeat[0])


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
