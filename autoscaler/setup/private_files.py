"""Writes files that exist completely or not at all. None is overwritten unless the caller replaces its own."""

import os
from pathlib import Path

PRIVATE, PUBLIC = 0o600, 0o644


class NotWrittenError(Exception):
    """A file cannot be written; the text says which and why."""


def write_new(path: Path, content: bytes, mode: int = PRIVATE) -> None:
    """Create a file, durably. Raises NotWrittenError, also if it exists."""
    try:
        _write(path, content, mode)
        _sync(path.parent)
    except FileExistsError:
        raise NotWrittenError(f"{path}: exists already; it is not overwritten") from None
    except OSError as error:
        raise NotWrittenError(f"{path}: cannot be written: {error.strerror}") from None


def replace(path: Path, content: bytes, mode: int = PRIVATE) -> None:
    """Replace a file by one with another content, in one step. Raises NotWrittenError."""
    beside = path.with_name(f".{path.name}.new")
    try:
        beside.unlink(missing_ok=True)
        _write(beside, content, mode)
        beside.replace(path)
        _sync(path.parent)
    except OSError as error:
        raise NotWrittenError(f"{path}: cannot be written: {error.strerror}") from None


def _write(path: Path, content: bytes, mode: int) -> None:
    """Write a new file. Raises OSError, and leaves nothing then, except a file of someone else."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        path.unlink()
        raise


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
