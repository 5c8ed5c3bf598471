"""Upgrades a database to the schema of this version, and refuses a newer schema.

All migrations run in the caller's transaction, so a crash leaves the old schema unchanged. There are no
downgrades.
"""

from collections.abc import Collection
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect

from autoscaler.controller.ports.store import StoreError

MIGRATIONS = Path(__file__).parent / "migrations"


def migrate(connection: Connection) -> None:
    """Upgrade to the newest schema inside the caller's transaction.

    Raises: StoreError if a newer version or another program wrote the database.
    """
    found = set(MigrationContext.configure(connection).get_current_heads())
    refuse_newer(found)
    if not found and inspect(connection).get_table_names():
        raise StoreError("the file contains tables of another program: name another file")
    if found != {newest_schema()}:
        command.upgrade(_config(connection), "head")


def newest_schema() -> str:
    """Return the schema that this version writes."""
    newest = ScriptDirectory(str(MIGRATIONS)).get_current_head()
    assert newest is not None
    return newest


def refuse_newer(found: Collection[str]) -> None:
    """Raise StoreError if this version does not know one of these schemas."""
    known = {script.revision for script in ScriptDirectory(str(MIGRATIONS)).walk_revisions()}
    if not known.issuperset(found):
        raise StoreError(
            f"written by a newer version of this program (schema {', '.join(sorted(found))}, "
            f"this one knows up to {newest_schema()}): run that version, or restore "
            "a backup made before the upgrade"
        )


def _config(connection: Connection) -> Config:
    config = Config()
    # The configuration parser would interpolate a percent sign in the path.
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config
