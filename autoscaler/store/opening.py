"""Opens the store that a URL from the configuration names.

A `sqlite:` URL has three slashes before a relative path and four before an absolute one. A `postgresql:` URL is
libpq's.
"""

from pathlib import Path

from autoscaler.controller.ports.replicas import SharedStore
from autoscaler.controller.ports.store import Store, StoreError
from autoscaler.store.database import Database
from autoscaler.store.sqlite.file import SqliteFile
from autoscaler.store.sqlite.store import SqliteStore
from autoscaler.store.sqlite.upkeep import SqliteUpkeep

_SQLITE = "sqlite:///"
_POSTGRESQL = "postgresql://"


def is_shared(url: str) -> bool:
    """Return whether several replicas can use the store that `url` names."""
    return url.startswith(_POSTGRESQL)


async def open_store(url: str) -> Store:
    """Open the store that `url` names, which is not shared.

    Raises: StoreError.
    """
    return await SqliteStore.open(_sqlite_path(url))


async def open_shared_store(url: str) -> SharedStore:
    """Open the shared store that `url` names. It does not lead yet.

    Raises: StoreError, without the URL's password.
    """
    # psycopg takes 0.3 s to import.
    from autoscaler.store.postgresql.store import PostgresqlStore

    return await PostgresqlStore.open(url)


def open_database(url: str, *, new: bool = True) -> Database:
    """Open the database that `url` names, for this thread alone. `new`: create the file if there is none.

    Raises: StoreError, without the URL's password.
    """
    if url.startswith(_POSTGRESQL):
        from autoscaler.store.postgresql.alone import open_alone

        return open_alone(url)
    path = _sqlite_path(url)
    if not new and not path.exists():
        raise StoreError(f"{path}: there is no such file")
    return SqliteFile(path)


def open_upkeep(url: str) -> SqliteUpkeep:
    """Return what backs up, restores and checks the SQLite file that `url` names, without opening the store.

    Raises: StoreError, without the URL's password.
    """
    if url.startswith(_POSTGRESQL):
        raise StoreError(
            "the store is on a PostgreSQL server: back it up with pg_dump, restore it with pg_restore, "
            "and let the server's own tools check it (docs/deploy.md#a-store-on-postgresql)"
        )
    return SqliteUpkeep(_sqlite_path(url))


def _sqlite_path(url: str) -> Path:
    scheme = url.partition(":")[0]
    path = url.removeprefix(_SQLITE)
    if scheme != "sqlite" or path == url or not path or path == ":memory:" or "?" in path:
        raise StoreError(
            "not the URL of a store: write sqlite:///PATH or postgresql://USER@HOST/DATABASE "
            f"(the scheme given is {scheme!r:.32})"
        )
    return Path(path)
