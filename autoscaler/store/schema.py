"""Upgrades a database to the schema of this version, and refuses a schema that this version cannot use.

All migrations run in the caller's transaction, so a crash leaves the old schema unchanged. There are no
downgrades. While replicas are upgraded one after the other, some of the version before use the new schema.
"""

from string import Template

from autoscaler.controller.ports.store import StoreError
from autoscaler.store.database import Connection
from autoscaler.store.migrations import MIGRATIONS
from autoscaler.store.tables import META

NEWEST_SCHEMA = max(MIGRATIONS)
"""The schema that this version writes."""

VERSION = "schema"
"""The key of the version in `meta`."""

USABLE_BY = "schema_usable_by"
"""The key in `meta` of the oldest schema whose version can use the database, too."""

_OLDEST_USER = sorted(MIGRATIONS)[-2]
"""Migrations only expand the schema, so the version before can use it. Later ones may drop what it needs."""

_ALEMBIC = "alembic_version"
"""The table of the version in a file that was last written with alembic. The versions are the same."""


def migrate(connection: Connection, until: str = NEWEST_SCHEMA) -> None:
    """Upgrade to the schema `until` inside the caller's transaction.

    Raises: StoreError if a newer version or another program wrote the database.
    """
    found = read_schema(connection)
    if found is None and connection.tables():
        raise StoreError("contains tables of another program: name another store")
    refuse_newer(found, read_usable_by(connection) if found is not None else None)
    if found is not None and found > NEWEST_SCHEMA:
        return
    for version, statements in MIGRATIONS.items():
        if (found or "") < version <= until:
            for statement in statements:
                connection.write(Template(statement).substitute(connection.types))
    if _ALEMBIC in connection.tables():
        connection.write(f"DROP TABLE {_ALEMBIC}")
    if read_schema(connection) != until:
        rows = {VERSION: until, USABLE_BY: _OLDEST_USER}
        connection.upsert(META, [{"key": key, "value": value} for key, value in rows.items()])


def read_schema(connection: Connection) -> str | None:
    """Return the version of the database's schema, or None if it is not a store."""
    tables = connection.tables()
    if not tables >= {"meta", "inbox", "history"}:
        return None
    if _ALEMBIC in tables:
        found = connection.read(f"SELECT version_num FROM {_ALEMBIC}")  # noqa: S608 - a constant
    else:
        found = connection.read("SELECT value FROM meta WHERE key = :key", key=VERSION)
    return str(found[0][0]) if found else None


def read_usable_by(connection: Connection) -> str | None:
    """Return the oldest schema whose version can use this store, or None if it is not known."""
    found = connection.read("SELECT value FROM meta WHERE key = :key", key=USABLE_BY)
    return str(found[0][0]) if found else None


def refuse_newer(found: str | None, usable_by: str | None) -> None:
    """Raise StoreError if this version does not know this schema, and cannot use it."""
    if found is None or found in MIGRATIONS:
        return
    if usable_by is None or usable_by > NEWEST_SCHEMA:
        raise StoreError(
            f"written by a newer version of this program (schema {found}, "
            f"this one knows up to {NEWEST_SCHEMA}): run that version, or restore "
            "a backup made before the upgrade"
        )
