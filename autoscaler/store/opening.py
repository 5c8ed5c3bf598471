"""Which store a URL from the configuration means.

A `sqlite:` URL has three slashes before a relative path and four before an absolute one.
"""

from pathlib import Path
from typing import Protocol

from autoscaler.controller.ports.readings import ReadingCache
from autoscaler.controller.ports.store import Store, StoreError

_SQLITE = "sqlite:///"


class OpenedStore(Store, ReadingCache, Protocol):
    """All that is kept in one database."""


async def open_store(url: str) -> OpenedStore:
    """Open the store that `url` names; raises StoreError. The URL's password is in no message."""
    scheme = url.partition(":")[0]
    if scheme in {"postgresql", "postgres"}:
        raise StoreError("a PostgreSQL store is not built yet: use sqlite:///PATH")
    path = url.removeprefix(_SQLITE)
    if scheme != "sqlite" or path == url or not path or path == ":memory:" or "?" in path:
        raise StoreError(f"not a store: write sqlite:///PATH (the scheme given is {scheme!r:.32})")
    # SQLAlchemy and alembic take half a second to import: `check` and `--help` never need them.
    from autoscaler.store.sqlite import SqliteStore

    return await SqliteStore.open(Path(path))
