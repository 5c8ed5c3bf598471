"""Opens the store that a URL from the configuration names.

A `sqlite:` URL has three slashes before a relative path and four before an absolute one.
"""

from pathlib import Path

from autoscaler.controller.ports.store import Store, StoreError
from autoscaler.store.sqlite.store import SqliteStore
from autoscaler.store.sqlite.upkeep import SqliteUpkeep

_SQLITE = "sqlite:///"


async def open_store(url: str) -> Store:
    """Open the store that `url` names.

    Raises: StoreError, without the URL's password.
    """
    return await SqliteStore.open(_sqlite_path(url))


def open_upkeep(url: str) -> SqliteUpkeep:
    """Return what backs up, restores and checks the store that `url` names, without opening the store.

    Raises: StoreError, without the URL's password.
    """
    return SqliteUpkeep(_sqlite_path(url))


def _sqlite_path(url: str) -> Path:
    scheme = url.partition(":")[0]
    if scheme in {"postgresql", "postgres"}:
        raise StoreError("a PostgreSQL store is not implemented yet: use sqlite:///PATH")
    path = url.removeprefix(_SQLITE)
    if scheme != "sqlite" or path == url or not path or path == ":memory:" or "?" in path:
        raise StoreError(
            f"not the URL of a store: write sqlite:///PATH (the scheme given is {scheme!r:.32})"
        )
    return Path(path)
