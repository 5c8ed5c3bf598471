"""Checks that the files in fleet.yaml can be read, and that its store can be written.

Reads only the first bytes of the store, and leaves no file behind when it tests writing.
"""

import errno
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryFile
from urllib.parse import parse_qsl, urlsplit

from autoscaler.config.configuration import Configuration, run_checks
from autoscaler.config.files.regular_files import open_regular
from autoscaler.config.problems import Problem, show, unreadable_fix
from autoscaler.config.settings.shapes import SecretFileName

_PAGE = 4096
"""Bytes of SQLite's smallest write (sqlite.org, "Database File Format", 1.3.2)."""
_PLAINLY_A_NAME = re.compile(r"[\w./-]{1,200}\.(?:pem|key|txt)")
"""`github-app.pem`, and no secret. `my-secret-token` may be the name of a file, or the secret itself."""
_SQLITE_MAGIC = b"SQLite format 3\0"
"""The first bytes of every database that is not empty (sqlite.org, "Database File Format", 1.2)."""


def check_files(configuration: Configuration, *, try_store: bool) -> Iterator[Problem]:
    """Return an error for each file that is missing or unreadable, and warnings about the others."""
    for path, name in configuration.named_files():
        reason = configuration.why_unreadable(name)
        if reason is not None:
            what, fix = reason
            hidden = isinstance(name, SecretFileName) and not (
                _exists(configuration.file(name)) or _PLAINLY_A_NAME.fullmatch(name)
            )
            if hidden:
                fix += "; if this is the secret itself, write it to a file and name the file"
            yield configuration.error(path, what if hidden else f"{show(name)} {what}", fix)
    yield from _exposed_secrets(configuration)
    yield from run_checks((_store,), configuration, try_store=try_store)
    yield from run_checks((_empty_store,), configuration)


def _exposed_secrets(configuration: Configuration) -> Iterator[Problem]:
    """Warn of each secret file that every user of the host can read."""
    for path, name in configuration.named_files():
        file = configuration.readable_file(name) if isinstance(name, SecretFileName) else None
        if file is not None and file.stat().st_mode & stat.S_IROTH:
            what = f"{show(file.name)} can be read by every user of this host"
            yield configuration.warning(path, what, f"run chmod o-rwx {file}")


def _empty_store(configuration: Configuration) -> Iterator[Problem]:
    """Warn of an empty store, which counts as a new one, because a failed copy may have left it."""
    file = configuration.sqlite_file()
    if file is not None and file.is_file() and not file.stat().st_size:
        what = f"{show(configuration.settings.store)} is an empty file, which counts as a new store"
        fix = "if you copied it from a backup, copy it again"
        yield configuration.warning(("store",), what, fix)


def _exists(file: Path) -> bool:
    try:
        return file.exists()
    except OSError:
        return False


def _store(configuration: Configuration, *, try_store: bool) -> Iterator[Problem]:
    file, url = configuration.sqlite_file(), configuration.settings.store
    if file is None:
        yield from _password_file(configuration)
        return
    try:
        there = file.parent.is_dir()
    except OSError:
        there = False
    if not there:
        what = f"the folder of {show(url)} does not exist"
        yield configuration.error(
            ("store",), what, f"create the folder {file.parent}, or use another one"
        )
        return
    reason = _store_error(file)
    if reason is None and try_store:
        reason = _unwritable(file)
    if reason is not None:
        yield configuration.error(("store",), f"{show(url)} {reason[0]}", reason[1])


def _password_file(configuration: Configuration) -> Iterator[Problem]:
    name = dict(parse_qsl(urlsplit(configuration.settings.store).query)).get("password_file")
    if name is not None and (reason := configuration.why_unreadable(name)) is not None:
        yield configuration.error(("store",), f"password_file {name} {reason[0]}", reason[1])


def _store_error(file: Path) -> tuple[str, str] | None:
    another = "name a new file, or the fleet's own store"
    try:
        if not file.exists():
            return None
        if not file.is_file():
            return "is not a file", another
        with open_regular(file) as opened:
            first = opened.read(len(_SQLITE_MAGIC))
    except OSError as error:
        return f"cannot be read: {error.strerror}", unreadable_fix(error)
    if first not in (b"", _SQLITE_MAGIC):
        return "is not a SQLite database", another
    return None


def _unwritable_fix(file: Path, error: OSError) -> str:
    folder = file.parent
    if isinstance(error, PermissionError):
        user = f"the user who runs this (id {os.geteuid()})"
        return f"let {user} write to the file and to its folder, {folder}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"free space in {folder}, or use another folder"
    # Such as a read-only file system (EROFS), or /proc, which takes no new file (ENOENT).
    return f"{folder} takes no new files: use a folder on a writable disk"


def _unwritable(file: Path) -> tuple[str, str] | None:
    """Return why the store or SQLite's files beside it cannot be written and the fix, or None.

    Writes a page to a temporary file in the same folder, and leaves nothing there.
    """
    try:
        if file.exists():
            file.open("r+b").close()
        with TemporaryFile(dir=file.parent, buffering=0) as opened:
            opened.write(bytes(_PAGE))
    except OSError as error:
        return f"cannot be written: {error.strerror}", _unwritable_fix(file, error)
    return None
