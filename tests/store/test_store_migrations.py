"""The schema and its history: the same tables either way, whole or not at all."""

import resource
import signal
import sqlite3
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, NullPool, create_engine, event, inspect
from sqlalchemy.engine.interfaces import ReflectedIndex
from structlog.testing import capture_logs

from autoscaler.controller.ports.store import Cooldown, Delivery, StoreError
from autoscaler.model.failures import FailureClass
from autoscaler.store.schema import MIGRATIONS, _config
from autoscaler.store.sqlite import SqliteStore
from autoscaler.store.sqlite_bulk import SqliteDialect
from autoscaler.store.sqlite_file import SqliteFile
from autoscaler.store.statements import load
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
        *("history", "cooldowns", "lease", "meta", "reruns", "readings"),
    }


def test_opening_again_changes_nothing(path: Path) -> None:
    seen = []
    for _ in range(2):
        file = SqliteFile(path)
        seen.append(file.transaction(everything))
        file.close()
    assert seen[0] == seen[1]
    assert ("0008",) in seen[0]


def everything(connection: Connection) -> list[tuple[object, ...]]:
    """The schema as SQLite keeps it, and its version."""
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
    set_version(path, "0008")
    again = await SqliteStore.open(path)
    assert (await again.load(0.0)).installations == installations
    await again.close()


async def test_deliveries_of_the_first_schema_are_moved_with_their_order_and_marks(
    path: Path,
) -> None:
    bodies = [b'{"n": %d}' % n for n in range(450)]
    make_first_schema(path, bodies)
    store = await SqliteStore.open(path)
    waiting = (await store.load(0.0)).unapplied
    assert [d.body for d in waiting] == bodies[1::2]
    assert [d.id for d in waiting] == [f"d-{n}" for n in range(1, 450, 2)]
    assert not await store.accept(Delivery("d-0", "workflow_job", 9.0, bodies[0]))
    assert not await store.accept(Delivery("d-0", "workflow_job", 9.0, bodies[1]))
    assert await store.accept(Delivery("d-0", "workflow_job", 9.0, b"{}"))
    await store.close()


async def test_copies_of_a_body_under_other_ids_become_one_delivery(path: Path) -> None:
    """One that was applied under any of its ids is not applied again."""
    applied, waiting = b'{"n": 0}', b'{"n": 1}'
    make_first_schema(path, [waiting, applied, applied, waiting, b"{}", waiting, b"[]", waiting])
    # Every second one is applied: put that right for the copies of `waiting`.
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE inbox SET applied = 0 WHERE id = 'd-0'")
    store = await SqliteStore.open(path)
    assert [(d.id, d.body) for d in (await store.load(0.0)).unapplied] == [("d-0", waiting)]
    assert not await store.accept(Delivery("new", "workflow_job", 9.0, applied))
    await store.close()


async def test_a_damaged_delivery_of_the_first_schema_does_not_stop_the_migration(
    path: Path,
) -> None:
    make_first_schema(path, [b"{}"] * 2)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE inbox SET body = x'00' WHERE id = 'd-1'")
    store = await SqliteStore.open(path)
    with pytest.raises(StoreError, match="the delivery d-1 in inbox is damaged"):
        await store.load(0.0)
    await store.close()


async def test_holds_of_the_third_schema_stay_and_count_failures_of_an_unknown_class(
    path: Path,
) -> None:
    """A hold that is forgotten would launch into what just failed."""
    make_cooldowns(path, "0003", "'option:gpu/0', 90.5, 4, 'AccessDenied: no'")
    store = await SqliteStore.open(path)
    assert (await store.load(0.0)).cooldowns == (
        Cooldown("option:gpu/0", 90.5, 4, "AccessDenied: no", FailureClass.UNKNOWN),
    )
    await store.close()


async def test_a_hold_of_a_class_that_is_none_is_named_as_damaged(path: Path) -> None:
    make_cooldowns(path, "0004", "'option:gpu/0', 90.5, 4, 'AccessDenied: no', 'bad luck'")
    store = await SqliteStore.open(path)
    with pytest.raises(
        StoreError, match="the row option:gpu/0 of cooldowns is damaged: 'bad luck'"
    ):
        await store.load(0.0)
    await store.close()


def make_cooldowns(path: Path, version: str, row: str) -> None:
    """A file as that version leaves it, with one row in its cooldowns."""
    engine = create_engine(f"sqlite:///{path}", poolclass=NullPool)
    with engine.begin() as connection:
        command.upgrade(_config(connection), version)
        connection.exec_driver_sql(f"INSERT INTO cooldowns VALUES ({row})")
    engine.dispose()


async def test_a_file_that_could_not_shrink_is_written_anew_once(path: Path) -> None:
    make_first_schema(path, [b"{}"])
    assert auto_vacuum(path) == 0
    store = await SqliteStore.open(path)
    assert not await store.accept(Delivery("other", "workflow_job", 9.0, b"{}"))
    await store.close()
    assert auto_vacuum(path) == 2


async def test_the_log_of_writing_a_large_file_anew_is_given_back(path: Path) -> None:
    make_first_schema(path, [b"{}"])
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE large (bytes)")
        connection.executemany("INSERT INTO large VALUES (randomblob(10000))", [()] * 3000)
    store = await SqliteStore.open(path)
    await store.beat(1.0)
    await store.beat(2.0)
    log = size(path.with_name(f"{path.name}-wal"))
    await store.close()
    assert size(path) > 30_000_000
    assert log <= 16 * 2**20


@contextmanager
def no_room(_: Path, driver: sqlite3.Connection) -> Iterator[None]:
    """SQLite may not make the file larger."""
    driver.execute("PRAGMA max_page_count = 1")
    try:
        yield
    finally:
        driver.execute("PRAGMA max_page_count = 1073741823")


@contextmanager
def another_writer(path: Path, driver: sqlite3.Connection) -> Iterator[None]:
    """Another program, such as a backup, holds SQLite's lock."""
    driver.execute("PRAGMA busy_timeout = 1")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield


@contextmanager
def a_limit_of_size(_: Path, __: sqlite3.Connection) -> Iterator[None]:
    """No file may grow beyond a page, as under `ulimit -f`."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


Hindrance = Callable[[Path, sqlite3.Connection], AbstractContextManager[None]]


class Hindered(SqliteFile):
    """Something is in the way while SQLite rewrites this file, and at no other time."""

    def __init__(self, path: Path, hindrance: Hindrance) -> None:
        self._hindrance = hindrance
        super().__init__(path)

    def _driver(self) -> sqlite3.Connection:
        driver, hindered = super()._driver(), partial(self._hindrance, self.path)

        class Driver:
            def execute(self, statement: str) -> sqlite3.Cursor:
                if statement != "VACUUM":
                    return driver.execute(statement)
                with hindered(driver):
                    return driver.execute(statement)

        return cast("sqlite3.Connection", Driver())


@pytest.mark.parametrize(
    ("hindrance", "reason"),
    [
        (no_room, "database or disk is full"),
        (another_writer, "database is locked"),
        (a_limit_of_size, "disk I/O error"),
    ],
)
def test_a_file_that_cannot_be_compacted_now_is_used_as_it_is(
    path: Path, hindrance: Hindrance, reason: str
) -> None:
    make_first_schema(path, [b"{}"])
    with capture_logs() as logs:
        file = Hindered(path, hindrance)
    assert file.transaction(lambda c: c.exec_driver_sql("SELECT count(*) FROM inbox").scalar()) == 1
    file.close()
    assert auto_vacuum(path) == 0
    assert [(one["event"], one["log_level"], one["path"]) for one in logs] == [
        ("store_compacting", "info", str(path)),
        ("store_not_compacted", "warning", str(path)),
    ]
    assert logs[1]["reason"] == reason
    assert "make room" in logs[1]["fix"]
    with capture_logs() as logs:
        SqliteFile(path).close()
    assert [one["event"] for one in logs] == ["store_compacting", "store_compacted"]
    assert logs[0]["bytes"] > 0
    with capture_logs() as logs:
        SqliteFile(path).close()
    assert logs == []


def test_a_damaged_file_is_not_opened_because_it_could_not_be_compacted(path: Path) -> None:
    make_first_schema(path, [b"{}"])
    with closing(sqlite3.connect(path)) as connection:
        find = "SELECT rootpage FROM sqlite_schema WHERE name = 'inbox'"
        page = connection.execute(find).fetchone()[0]
    with path.open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xff" * 4096)
    with capture_logs() as logs, pytest.raises(StoreError, match="the file is damaged"):
        SqliteFile(path)
    assert [one["event"] for one in logs] == ["store_compacting"]


def size(path: Path) -> int:
    return path.stat().st_size


def auto_vacuum(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("PRAGMA auto_vacuum").fetchone()[0])


def make_first_schema(path: Path, bodies: Sequence[bytes]) -> None:
    """A file as version 0001 left it; every second delivery is applied, beginning with the first."""
    engine = create_engine(f"sqlite:///{path}", poolclass=NullPool)
    with engine.begin() as connection:
        config = _config(connection)
        command.upgrade(config, "0001")
        for number, body in enumerate(bodies):
            connection.exec_driver_sql(
                "INSERT INTO inbox (id, event, received_at, applied, body) VALUES (?, ?, ?, ?, ?)",
                (f"d-{number}", "workflow_job", 1.0, number % 2 == 0, zlib.compress(body)),
            )
    engine.dispose()


def test_the_deliveries_that_wait_are_found_by_their_index(path: Path) -> None:
    """SQLite uses a partial index only for a query in the index's own words."""
    plans: list[list[tuple[Any, ...]]] = []
    file = SqliteFile(path)

    def explained(connection: Connection) -> None:
        def explain(_c: object, cursor: sqlite3.Cursor, sql: str, *more: Any) -> None:
            if "FROM inbox" in sql:
                plans.append(cursor.execute(f"EXPLAIN QUERY PLAN {sql}", more[0]).fetchall())

        event.listen(connection, "before_cursor_execute", explain)
        load(connection, SqliteDialect(), 0.0)

    file.transaction(explained)
    file.close()
    assert [[step[3] for step in plan] for plan in plans] == [
        ["SCAN inbox USING INDEX inbox_unapplied"]
    ]


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
