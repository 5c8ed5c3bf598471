"""Opens the store that a URL from the configuration names.

A `sqlite:` URL has three slashes before a relative path and four before an absolute one.
"""

from pathlib import Path

from autoscaler.controller.ports.store import Store, StoreError

_SQLITE = "sqlite:///"


async def open_store(url: str) -> Store:
    """Open the store that `url` names.

    Raises: StoreError, without the URL's password.
    """
    scheme = url.partition(":")[0]
    if scheme in {"postgresql", "postgres"}:
        raise StoreError("a PostgreSQL store is not implemented yet: use sqlite:///PATH")
    path = url.removeprefix(_SQLITE)
    if scheme != "sqlite" or path == url or not path or path == ":memory:" or "?" in path:
        raise StoreError(
            f"not the URL of a store: write sqlite:///PATH (the scheme given is {scheme!r:.32})"
        )
    # SQLAlchemy and alembic take half a second to import, and `check` and `--help` do not use them.
    from autoscaler.store.sqlite import SqliteStore

    return await SqliteStore.open(Path(path))
