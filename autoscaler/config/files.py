"""Looks whether the files that fleet.yaml names are there. Reads of them the store's first bytes.

The name of a secret's file is not repeated while nothing is there: some day somebody will write
the secret itself where its file should stand.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from autoscaler.config.checks import text
from autoscaler.config.document import Document
from autoscaler.config.problems import KeyPath, Problem, show
from autoscaler.config.shapes import FilePath
from autoscaler.config.values import valid

SQLITE = "sqlite:///"
_NOT_THERE = "names a file that is not there"
_SQLITE_MAGIC = b"SQLite format 3\0"
"""How every database begins that is not empty (sqlite.org, "Database File Format", 1.2)."""
_SECRET = {"private_key_file", "webhook_secret_file", "key_file", "admin_token_file"}


def check_files(document: Document, folder: Path) -> Iterator[Problem]:
    """Every named file that is missing or cannot be read; names are relative to `folder`."""
    for path in _paths(document):
        name = text(document.root, *path)
        if name is None or not name or "\0" in name:
            continue
        secret = path[-1] in _SECRET
        trouble = _trouble(folder / name)
        if trouble:
            # Where nothing is there, the name itself may be the secret.
            what = trouble if secret and trouble == _NOT_THERE else f"{show(name)} {trouble}"
            fix = f"put the file there, or name another; names are relative to {folder}"
            yield document.problem(path, what, fix)
    yield from _store(document, folder)


def empty_store(document: Document, folder: Path) -> Iterator[Problem]:
    """A warning about a store of no bytes, as a copy that failed leaves it: it is a new one's."""
    url = text(document.root, "store") or ""
    file = folder / url.removeprefix(SQLITE)
    if url.startswith(SQLITE) and file.is_file() and not file.stat().st_size:
        what = f"{show(url)} names an empty file, which is a new store"
        fix = "restore the backup again, if it was to be one"
        yield document.problem(("store",), what, fix, warning=True)


def named_file(document: Document, folder: Path, *path: str | int) -> Path | None:
    """The file that is named at a path; None where none is named, or none that can be read."""
    name = valid(document.root, FilePath, *path)
    if name is None or _trouble(folder / name) is not None:
        return None  # as `check_files` says
    return folder / str(name)


def _paths(document: Document) -> Iterator[KeyPath]:
    root = document.root
    apps = root.get("github", "apps")
    for index, _ in apps.items() if apps else ():
        yield ("github", "apps", index, "private_key_file")
    yield ("github", "webhook_secret_file")
    for key in ("certificate_file", "key_file", "ca_file"):
        yield ("server", "tls", key)
    yield ("server", "admin_token_file")
    providers = root.child("providers")
    for name, provider in providers.entries() if providers else ():
        certificates = provider.get("ec2", "identity_certificates")
        for index, _ in certificates.items() if certificates else ():
            yield ("providers", name, "ec2", "identity_certificates", index)


def _trouble(path: Path) -> str | None:
    try:
        if not path.exists():
            return _NOT_THERE
        if not path.is_file():
            return "names something that is not a file"
    except OSError:
        return "names a file that cannot be looked at"
    return None if os.access(path, os.R_OK) else "names a file that cannot be read"


def _store(document: Document, folder: Path) -> Iterator[Problem]:
    url = text(document.root, "store")
    if url is None or not url.startswith(SQLITE) or "\0" in url:
        return
    file = folder / url.removeprefix(SQLITE)
    try:
        there = file.parent.is_dir()
    except OSError:
        there = False
    if not there:
        what = f"the folder of {show(url)} is not there"
        yield document.problem(("store",), what, f"make the folder {file.parent}, or name another")
        return
    trouble = _store_trouble(file)
    if trouble is not None:
        fix = "name a file that is not there yet, or the fleet's own"
        yield document.problem(("store",), f"{show(url)} {trouble}", fix)


def _store_trouble(file: Path) -> str | None:
    try:
        if not file.exists():
            return None
        if not file.is_file():
            return "names something that is not a file"
        with file.open("rb") as opened:
            first = opened.read(len(_SQLITE_MAGIC))
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return None if first in (b"", _SQLITE_MAGIC) else "names a file that is no SQLite database"
