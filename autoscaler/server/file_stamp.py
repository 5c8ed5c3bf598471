"""Detects that a file changed, from one stat(2) call."""

from pathlib import Path

FileStamp = tuple[int, int, int, int] | None
"""Inode, size, modification time and status change time of a file, None for a missing file.

Who writes a file can set its modification time, as `cp -p` does, and no one can set the other (inode(7)).
"""


def file_stamp(file: Path) -> FileStamp:
    """Return the stamp of a file. It differs after the file was written, replaced or removed."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def is_empty(stamp: FileStamp) -> bool:
    """Return True for a file that is missing or has no byte."""
    return stamp is None or stamp[1] == 0
