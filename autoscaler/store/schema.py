"""Brings a database to the schema that this code knows, and refuses one that is newer.

All migrations of one opening share the caller's transaction, so a crash leaves the old schema
whole. It never goes back to an older one.
"""

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

    Raises StoreError when the database was written by a newer version, or is not ours.
    """
    config = _config(connection)
    scripts = ScriptDirectory.from_config(config)
    known = {script.revision for script in scripts.walk_revisions()}
    found = set(MigrationContext.configure(connection).get_current_heads())
    if found - known:
        raise StoreError(
            f"written by a newer version of this program (schema {', '.join(sorted(found))}, "
            f"this one knows up to {scripts.get_current_head()}): run that version, or restore "
            "a backup made before the upgrade"
        )
    if not found and inspect(connection).get_table_names():
        raise StoreError("holds tables of another program: name a file of its own")
    if found != set(scripts.get_heads()):
        command.upgrade(config, "head")


def _config(connection: Connection) -> Config:
    config = Config()
    # A percent sign in the path would be taken for an interpolation.
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config
