"""What precedes every use of a SQLite file: its lock, a look for damage, and the words of SQLite's errors."""

import fcntl
import os
import sqlite3
from contextlib import closing
from pathlib import Path

from autoscaler.controller.ports.store import StoreError

OWNER_ONLY = 0o600

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


def lock(path: Path) -> int:
    """Take the lock of the process that uses the file, and return its descriptor.

    Raises: StoreError if another process has it.
    """
    # The lock is a file of its own: closing any descriptor of the database drops SQLite's locks.
    beside = path.with_name(path.name + ".lock")
    try:
        descriptor = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, OWNER_ONLY)
    except OSError as error:
        raise StoreError(
            f"{path}: {beside} cannot be opened: {error.strerror}; the folder must exist, "
            "have free space, and let this user write"
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise StoreError(
            f"{path}: in use by another process: only one process can use a SQLite store"
        ) from error
    return descriptor


def open_for_reading(path: Path) -> sqlite3.Connection:
    """Return a connection that does not change the file.

    A connection that may write copies the write-ahead log into the file when it closes (sqlite.org/wal.html).
    Raises: sqlite3.Error.
    """
    # A journal is left by a crash of the file's creation. Only a connection that may write can apply it.
    unfinished = path.with_name(path.name + "-journal").exists()
    address = f"{path.absolute().as_uri()}?mode={'rw' if unfinished else 'ro'}"
    return sqlite3.connect(address, uri=True)


def refuse_damage(path: Path) -> None:
    """Read the whole file (1.8 s for 1.1 GB in memory), because a query reads only the pages it needs.

    Raises: StoreError, before anything is written.
    """
    try:
        with closing(open_for_reading(path)) as driver:
            finding = driver.execute("PRAGMA integrity_check(1)").fetchone()[0]
    except sqlite3.Error as error:
        raise explained(path, error) from error
    if finding != "ok":
        shown = " ".join(finding.split())[:_MAX_FINDING]
        raise StoreError(f"{path}: {_DAMAGED} (integrity_check: {shown})")


def explained(path: Path, error: sqlite3.Error) -> StoreError:
    """Return the error with what to do about it."""
    name = getattr(error, "sqlite_errorname", "")
    for prefix, words in _ERROR_WORDS.items():
        if name.startswith(prefix):
            return StoreError(f"{path}: {words} ({name})")
    return StoreError(f"{path}: {error}")
