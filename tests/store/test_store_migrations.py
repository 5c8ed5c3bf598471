"""The migrations create the tables that the code uses, and a failed one leaves the file unchanged."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, NullPool, create_engine, event, inspect
from sqlalchemy.engine.interfaces import ReflectedIndex

from autoscaler.controller.ports.store import Cooldown, StoreError
from autoscaler.store.schema import MIGRATIONS
from autoscaler.store.sqlite.file import SqliteFile
from autoscaler.store.sqlite.store import SqliteStore
from autoscaler.store.statements import load
from autoscaler.store.tables import metadata

NEWEST = "0006"


def shape(connection: Connection) -> dict[str, tuple[object, ...]]:
    """Return the columns, keys and indexes of every table except alembic's."""
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


def test_migrating_an_empty_file_creates_the_tables_of_the_code(path: Path) -> None:
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
        *("jobs", "launch_requests", "machines", "runners", "inbox"),
        *("history", "cooldowns", "meta", "reruns", "readings", "usage"),
    }


def test_opening_again_changes_nothing(path: Path) -> None:
    seen = []
    for _ in range(2):
        file = SqliteFile(path)
        seen.append(file.transaction(everything))
        file.close()
    assert seen[0] == seen[1]
    assert (NEWEST,) in seen[0]


def everything(connection: Connection) -> list[tuple[object, ...]]:
    """Return the schema as SQLite stores it, and its version."""
    queries = ("SELECT sql FROM sqlite_master ORDER BY name", "SELECT * FROM alembic_version")
    return [tuple(row) for query in queries for row in connection.exec_driver_sql(query)]


async def test_a_database_of_a_newer_version_is_refused_and_left_as_it_is(path: Path) -> None:
    store = await SqliteStore.open(path)
    installations = (await store.load(0.0)).installations
    await store.close()
    set_version(path, "9999")
    with pytest.raises(StoreError, match=r"newer version of this program \(schema 9999"):
        await SqliteStore.open(path)
    assert get_version(path) == "9999"
    set_version(path, NEWEST)
    again = await SqliteStore.open(path)
    assert (await again.load(0.0)).installations == installations
    await again.close()


async def test_a_cooldown_with_an_unknown_failure_class_is_reported_as_damaged(path: Path) -> None:
    store = await SqliteStore.open(path)
    await store.commit([], [], (), [Cooldown("option:gpu/0", 90.5, 4, "AccessDenied: no")])
    await store.close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE cooldowns SET failure = 'bad luck'")
    store = await SqliteStore.open(path)
    with pytest.raises(
        StoreError, match="the row option:gpu/0 of cooldowns is damaged: 'bad luck'"
    ):
        await store.load(0.0)
    await store.close()


def test_unapplied_deliveries_are_found_by_their_index(path: Path) -> None:
    """SQLite uses a partial index only for a query with the same text in its condition."""
    plans: list[list[tuple[Any, ...]]] = []
    file = SqliteFile(path)

    def explained(connection: Connection) -> None:
        def explain(_c: object, cursor: sqlite3.Cursor, sql: str, *more: Any) -> None:
            if "FROM inbox" in sql:
                plans.append(cursor.execute(f"EXPLAIN QUERY PLAN {sql}", more[0]).fetchall())

        event.listen(connection, "before_cursor_execute", explain)
        load(connection, 0.0)

    file.transaction(explained)
    file.close()
    assert [[step[3] for step in plan] for plan in plans] == [
        ["SCAN inbox USING INDEX inbox_unapplied"]
    ]


def test_a_migration_that_fails_changes_nothing(path: Path) -> None:
    file = SqliteFile(path)

    def half(connection: Connection) -> None:
        connection.exec_driver_sql("CREATE TABLE half (x)")
        connection.exec_driver_sql("DROP TABLE meta")
        raise StoreError("failed halfway")

    before = file.transaction(shape)
    with pytest.raises(StoreError, match="failed halfway"):
        file.transaction(half)
    assert file.transaction(shape) == before
    file.close()


def test_the_package_contains_the_migrations() -> None:
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
