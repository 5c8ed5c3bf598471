"""The schema and its history: the same tables either way, whole or not at all."""

import sqlite3
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, NullPool, create_engine, inspect
from sqlalchemy.engine.interfaces import ReflectedIndex

from autoscaler.controller.ports.store import StoreError
from autoscaler.store.schema import MIGRATIONS
from autoscaler.store.sqlite import SqliteStore
from autoscaler.store.sqlite_file import SqliteFile
from autoscaler.store.tables import metadata


def shape(connection: Connection) -> dict[str, tuple[object, ...]]:
    """Columns, keys and indexes of every table, alembic's own aside."""
    looking = inspect(connection)
    return {
        table: (
            [(c["name"], str(c["type"]), c["nullable"]) for c in looking.get_columns(table)],
            looking.get_pk_constraint(table)["constrained_columns"],
            sorted(described(index) for index in looking.get_indexes(table)),
            [c["column_names"] for c in looking.get_unique_constraints(table)],
        )
        for table in looking.get_table_names()
        if table != "alembic_version"
    }


def described(index: ReflectedIndex) -> tuple[str, str, str]:
    where = index.get("dialect_options", {}).get("sqlite_where")
    return str(index["name"]), str(index["column_names"]), str(where)


def test_migrating_from_nothing_makes_the_tables_that_the_code_knows(path: Path) -> None:
    file = SqliteFile(path)
    differences = file.transaction(
        lambda c: compare_metadata(MigrationContext.configure(c), metadata)
    )
    migrated = file.transaction(shape)
    file.close()
    engine = create_engine("sqlite://", poolclass=NullPool)
    with engine.connect() as connection:
        metadata.create_all(connection)
        made = shape(connection)
    assert differences == []
    assert migrated == made
    assert set(made) == {
        *("jobs", "calls", "machines", "runners", "inbox"),
        *("history", "cooldowns", "lease", "meta"),
    }


def test_opening_again_changes_nothing(path: Path) -> None:
    seen = []
    for _ in range(2):
        file = SqliteFile(path)
        seen.append(file.transaction(everything))
        file.close()
    assert seen[0] == seen[1]
    assert ("0001",) in seen[0]


def everything(connection: Connection) -> list[tuple[object, ...]]:
    """The schema as SQLite keeps it, and its version."""
    queries = ("SELECT sql FROM sqlite_master ORDER BY name", "SELECT * FROM alembic_version")
    return [tuple(row) for query in queries for row in connection.exec_driver_sql(query)]


async def test_a_database_of_a_newer_version_is_refused_and_left_as_it_is(path: Path) -> None:
    store = await SqliteStore.open(path)
    installation = (await store.load(0.0)).installation
    await store.close()
    set_version(path, "9999")
    with pytest.raises(StoreError, match=r"newer version of this program \(schema 9999"):
        await SqliteStore.open(path)
    assert get_version(path) == "9999"
    set_version(path, "0001")
    again = await SqliteStore.open(path)
    assert (await again.load(0.0)).installation == installation
    await again.close()


def test_a_migration_that_is_cut_short_leaves_nothing(path: Path) -> None:
    file = SqliteFile(path)

    def half(connection: Connection) -> None:
        connection.exec_driver_sql("CREATE TABLE half (x)")
        connection.exec_driver_sql("DROP TABLE meta")
        raise StoreError("cut short")

    before = file.transaction(shape)
    with pytest.raises(StoreError, match="cut short"):
        file.transaction(half)
    assert file.transaction(shape) == before
    file.close()


def test_the_migrations_travel_with_the_package() -> None:
    names = {entry.name for entry in MIGRATIONS.iterdir()}
    assert {"env.py", "script.py.mako", "versions"} <= names


def set_version(path: Path, version: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute("UPDATE alembic_version SET version_num = ?", (version,))
    connection.commit()
    connection.close()


def get_version(path: Path) -> str:
    connection = sqlite3.connect(path)
    (version,) = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    connection.close()
    return str(version)
