"""The migrations create the tables that the code uses, and a failed one leaves the file unchanged."""

import re
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from autoscaler.controller.ports.store import Cooldown, Delivery, StoreError
from autoscaler.model.identifiers import InstallationId, Installations
from autoscaler.store.database import Connection
from autoscaler.store.loading import read
from autoscaler.store.migrations import MIGRATIONS
from autoscaler.store.schema import NEWEST_SCHEMA, refuse_newer
from autoscaler.store.sqlite.file import SqliteFile
from autoscaler.store.sqlite.store import SqliteStore
from autoscaler.store.tables import TABLES
from tests.store.records import job

ALEMBIC = Path(__file__).with_name("written_with_alembic.sql")
"""A store with a job and a delivery, as an earlier version of this program wrote it."""


def shape(connection: Connection) -> dict[str, tuple[object, ...]]:
    """Return the columns, keys and indexes of every table."""
    return {
        table: (
            connection.read(
                f"SELECT name, type, \"notnull\", pk FROM pragma_table_info('{table}')"
            ),
            connection.read(
                "SELECT i.name, i.\"unique\", i.origin, group_concat(c.name), m.sql LIKE '%WHERE%' "
                f"FROM pragma_index_list('{table}') i JOIN pragma_index_info(i.name) c "
                "LEFT JOIN sqlite_master m ON m.name = i.name GROUP BY i.name ORDER BY i.name"
            ),
        )
        for table in sorted(connection.tables())
    }


def test_migrating_an_empty_file_creates_the_tables_of_the_code(path: Path) -> None:
    file = SqliteFile(path)
    made = file.transaction(shape)
    keys = {table.name: file.transaction(partial(keys_of, table=table.name)) for table in TABLES}
    file.close()
    assert set(made) == {table.name for table in TABLES}
    for table in TABLES:
        columns = made[table.name][0]
        assert isinstance(columns, list)
        assert sorted(column[0] for column in columns) == sorted(table.columns)
        assert keys[table.name] == table.columns[: table.keys]


def keys_of(connection: Connection, table: str) -> tuple[str, ...]:
    """Return the columns of a table's primary key, in order."""
    found = connection.read(
        f"SELECT name FROM pragma_table_info('{table}') WHERE pk > 0 ORDER BY pk"
    )
    return tuple(name for (name,) in found)


def test_opening_again_changes_nothing(path: Path) -> None:
    seen = []
    for _ in range(2):
        file = SqliteFile(path)
        seen.append(file.transaction(everything))
        file.close()
    assert seen[0] == seen[1]
    assert ("schema", NEWEST_SCHEMA) in seen[0]


def everything(connection: Connection) -> list[tuple[object, ...]]:
    """Return the schema as SQLite stores it, and its version."""
    queries = ("SELECT sql FROM sqlite_master ORDER BY name", "SELECT key, value FROM meta")
    return [row for query in queries for row in connection.read(query)]


def test_the_versions_are_numbers_in_order() -> None:
    assert list(MIGRATIONS) == [f"{number:04}" for number in range(1, len(MIGRATIONS) + 1)]


async def test_a_file_that_was_written_with_alembic_is_adopted_once(path: Path) -> None:
    with closing(sqlite3.connect(path)) as old:
        old.executescript(ALEMBIC.read_text())
    for _ in range(2):
        store = await SqliteStore.open(path)
        state = await store.load(0.0)
        assert state.installations == Installations(InstallationId("0badcafe"))
        assert (state.jobs, state.heartbeat) == ((job(7),), 123.5)
        assert state.unapplied == (Delivery("a", "workflow_job", 100.0, b'{"action": "queued"}'),)
        assert not await store.accept(state.unapplied[0])
        await store.close()
    made = SqliteFile(path.with_name("new.db"))
    found = SqliteFile(path)
    assert found.transaction(shape) == made.transaction(shape)
    found.close()
    made.close()
    assert get_version(path) == NEWEST_SCHEMA


def test_a_file_that_a_newer_version_wrote_with_alembic_is_refused_and_left(path: Path) -> None:
    with closing(sqlite3.connect(path)) as old, old:
        old.executescript(ALEMBIC.read_text())
        old.execute("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(StoreError, match=r"newer version of this program \(schema 9999"):
        SqliteFile(path)
    with closing(sqlite3.connect(path)) as old:
        assert old.execute("SELECT version_num FROM alembic_version").fetchone() == ("9999",)


async def test_a_database_of_a_newer_version_is_refused_and_left_as_it_is(path: Path) -> None:
    store = await SqliteStore.open(path)
    installations = (await store.load(0.0)).installations
    await store.close()
    set_version(path, "9999")
    with pytest.raises(StoreError, match=r"newer version of this program \(schema 9999"):
        await SqliteStore.open(path)
    assert get_version(path) == "9999"
    set_version(path, NEWEST_SCHEMA)
    again = await SqliteStore.open(path)
    assert (await again.load(0.0)).installations == installations
    await again.close()


def test_every_known_schema_is_accepted() -> None:
    for version in (None, *MIGRATIONS):
        refuse_newer(version, None)


def test_each_migration_only_expands_the_schema() -> None:
    """The version before uses it, too, while replicas are upgraded one after the other."""
    for statements in MIGRATIONS.values():
        for statement in statements:
            words = " ".join(statement.split())
            assert re.match(
                r"CREATE (UNIQUE )?(TABLE|INDEX) |UPDATE |ALTER TABLE \w+ ADD COLUMN .* DEFAULT ",
                words,
            ), words


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
    file = SqliteFile(path)
    queries: list[str] = []
    file._driver.set_trace_callback(queries.append)
    file.transaction(lambda c: read(c, 0.0))
    file._driver.set_trace_callback(None)
    (query,) = (sql for sql in queries if "FROM inbox" in sql)
    plan = file.transaction(lambda c: c.read(f"EXPLAIN QUERY PLAN {query}"))
    file.close()
    assert [step[3] for step in plan] == ["SCAN inbox USING INDEX inbox_unapplied"]


def test_a_migration_that_fails_changes_nothing(path: Path) -> None:
    file = SqliteFile(path)

    def half(connection: Connection) -> None:
        connection.write("CREATE TABLE half (x)")
        connection.write("DROP TABLE meta")
        raise StoreError("failed halfway")

    before = file.transaction(shape)
    with pytest.raises(StoreError, match="failed halfway"):
        file.transaction(half)
    assert file.transaction(shape) == before
    file.close()


def set_version(path: Path, version: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE meta SET value = ? WHERE key LIKE 'schema%'", (version,))


def get_version(path: Path) -> str:
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute("SELECT value FROM meta WHERE key = 'schema'").fetchone()
    return str(found[0])
