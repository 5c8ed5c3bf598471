"""Opens files that the controller reads, some of them again while it serves."""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

from autoscaler.config.problems import ConfigurationError, Problem, unreadable_fix

MAX_REGULAR_BYTES = 2**20
"""Certificates and boot scripts are smaller."""


class UnusableFileError(ValueError):
    """The content of a file cannot be used: `what` goes after its name, `fix` says what to do."""

    def __init__(self, what: str, fix: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.fix = fix


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading. Raises OSError, also for any other kind of file.

    The opening and the reading of a FIFO wait for a writer (fifo(7)): one would stop the controller.
    """
    return open(path, "rb", opener=_open)


def read_regular(path: Path) -> bytes:
    """Return the content of a regular file.

    Raises OSError, also for any other kind of file, and for more than 1 MiB (MAX_REGULAR_BYTES).
    """
    with open_regular(path) as file:
        content = file.read(MAX_REGULAR_BYTES + 1)
    if len(content) > MAX_REGULAR_BYTES:
        reason = f"Larger than {MAX_REGULAR_BYTES // 2**20} MiB"
        raise OSError(errno.EFBIG, reason, str(path))
    return content


def read_bounded(path: Path, shown: str, maximum: int) -> bytes:
    """Return a file's content, at most one byte more than `maximum`. Raises ConfigurationError."""
    try:
        with open_regular(path) as file:
            return file.read(maximum + 1)
    except OSError as error:
        what = f"cannot be read: {error.strerror}"
        if path == Path():
            what = "cannot be read: it is a folder (an empty name means the current folder)"
        fix = unreadable_fix(error)
        if isinstance(error, FileNotFoundError) and not path.is_absolute():
            fix = f"create the file, or correct the name, which is relative to {Path.cwd()}"
        raise ConfigurationError([Problem(shown, 0, "", what, fix)]) from None


def _open(path: str, flags: int) -> int:
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    mode = os.fstat(descriptor).st_mode
    # Python itself refuses a folder.
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "Not a regular file", path)
