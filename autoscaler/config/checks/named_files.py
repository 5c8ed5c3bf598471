"""Checks that the files in fleet.yaml can be read, and that its store can be written.

Reads only the first bytes of the store, and leaves no file behind when it tests writing.

An error does not repeat the name of a missing secret file, because an operator may have written the
secret itself instead of the file name.
"""

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryFile

from autoscaler.config.checks.contradictions import text
from autoscaler.config.files.regular_files import open_regular
from autoscaler.config.problems import KeyPath, Problem, show, unreadable_fix
from autoscaler.config.provider_kind import ProviderKind
from autoscaler.config.reading.document import Document
from autoscaler.config.reading.values import valid
from autoscaler.config.settings.shapes import FilePath

SQLITE = "sqlite:///"
_PAGE = 4096
"""Bytes of SQLite's smallest write (sqlite.org, "Database File Format", 1.3.2)."""
_SQLITE_MAGIC = b"SQLite format 3\0"
"""The first bytes of every database that is not empty (sqlite.org, "Database File Format", 1.2)."""
_SECRET = {
    "private_key_file",
    "webhook_secret_file",
    "key_file",
    "admin_token_file",
    "metrics_token_file",
}


def check_files(
    document: Document, folder: Path, kinds: Sequence[ProviderKind], *, try_store: bool
) -> Iterator[Problem]:
    """Return an error for each file that is missing or unreadable; names are relative to `folder`."""
    for path in _paths(document, kinds):
        name = text(document.root, *path)
        if name is None or not name or "\0" in name:
            continue
        reason = _read_error(folder, name)
        if reason is None:
            continue
        what, fix = reason
        # If there is no such file, the name itself may be the secret.
        secret = path[-1] in _SECRET and not _exists(folder / name)
        yield document.problem(path, what if secret else f"{show(name)} {what}", fix)
    yield from _store(document, folder, try_store)


def empty_store(document: Document, folder: Path) -> Iterator[Problem]:
    """Warn of an empty store, which counts as a new one, because a failed copy may have left it."""
    url = text(document.root, "store") or ""
    file = folder / url.removeprefix(SQLITE)
    if url.startswith(SQLITE) and file.is_file() and not file.stat().st_size:
        what = f"{show(url)} is an empty file, which counts as a new store"
        fix = "if you copied it from a backup, copy it again"
        yield document.problem(("store",), what, fix, warning=True)


def exposed_secrets(
    document: Document, folder: Path, kinds: Sequence[ProviderKind]
) -> Iterator[Problem]:
    """Warn of each secret file that every user of the host can read."""
    for path in _paths(document, kinds):
        file = named_file(document, folder, *path) if path[-1] in _SECRET else None
        if file is None or not file.stat().st_mode & stat.S_IROTH:
            continue
        what = f"{show(file.name)} can be read by every user of this host"
        yield document.problem(path, what, f"run chmod o-rwx {file}", warning=True)


def named_file(document: Document, folder: Path, *path: str | int) -> Path | None:
    """Return the file that the value at a path names, or None if it cannot be read."""
    name = valid(document.root, FilePath, *path)
    if name is None or _read_error(folder, name) is not None:
        return None  # `check_files` reports it
    return folder / str(name)


def _paths(document: Document, kinds: Sequence[ProviderKind]) -> Iterator[KeyPath]:
    root = document.root
    apps = root.get("github", "apps")
    for index, _ in apps.items() if apps else ():
        yield ("github", "apps", index, "private_key_file")
    yield ("github", "webhook_secret_file")
    for key in ("certificate_file", "key_file", "ca_file"):
        yield ("server", "tls", key)
    yield ("server", "admin_token_file")
    yield ("server", "metrics_token_file")
    yield ("versions_file",)
    skus = root.child("skus")
    for name, _ in skus.entries() if skus else ():
        yield ("skus", name, "boot_script_file")
    providers = root.child("providers")
    for name, provider in providers.entries() if providers else ():
        for kind in kinds:
            section = provider.child(kind.key)
            for path in kind.files(section) if section is not None else ():
                yield ("providers", name, kind.key, *path)


def _read_error(folder: Path, name: str) -> tuple[str, str] | None:
    """Return why a file cannot be read and the fix, or None."""
    file = folder / name
    try:
        if not file.exists():
            fix = f"create the file, or correct the name, which is relative to {folder.absolute()}"
            return "does not exist", fix
        if not file.is_file():
            return "is not a file", "name a file"
        open_regular(file).close()
    except OSError as error:
        return f"cannot be read: {error.strerror}", unreadable_fix(error)
    return None


def _exists(file: Path) -> bool:
    try:
        return file.exists()
    except OSError:
        return False


def _store(document: Document, folder: Path, try_store: bool) -> Iterator[Problem]:
    url = text(document.root, "store")
    if url is None or not url.startswith(SQLITE) or "\0" in url:
        return
    file = folder / url.removeprefix(SQLITE)
    try:
        there = file.parent.is_dir()
    except OSError:
        there = False
    if not there:
        what = f"the folder of {show(url)} does not exist"
        yield document.problem(
            ("store",), what, f"create the folder {file.parent}, or use another one"
        )
        return
    reason = _store_error(file)
    if reason is None and try_store:
        reason = _unwritable(file)
    if reason is not None:
        yield document.problem(("store",), f"{show(url)} {reason[0]}", reason[1])


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
