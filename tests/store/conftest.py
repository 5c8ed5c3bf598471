"""Stores on a real file and on a real PostgreSQL server, closed after the test, and the simulator's store."""

from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from autoscaler.controller.ports.store import Store
from autoscaler.simulator.world.controller.store import MemoryStore
from autoscaler.store.database import Connection
from autoscaler.store.postgresql.alone import open_alone
from autoscaler.store.schema import NEWEST_SCHEMA, USABLE_BY, VERSION
from autoscaler.store.sqlite.store import SqliteStore
from tests.store.next_schema import NEXT_SCHEMA, STATEMENTS
from tests.store.opened import Opener, open_leading
from tests.store.postgresql_server import PostgresqlServer


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    opened = await SqliteStore.open(path)
    yield opened
    await opened.close()


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresqlServer]:
    started = PostgresqlServer()
    yield started
    started.close()


@pytest.fixture(params=["sqlite", "postgresql", "of the next version"])
def opener(request: pytest.FixtureRequest, path: Path) -> Opener:
    """Opens a database of the test's own, which is empty at first.

    While replicas are upgraded one after the other, those of this version use the schema of the next one.
    """
    if request.param == "sqlite":
        return partial(SqliteStore.open, path)
    server: PostgresqlServer = request.getfixturevalue("server")
    url = server.database()
    if request.param == "of the next version":
        with closing(open_alone(url)) as database:
            database.transaction(expand)
    return partial(open_leading, url)


def expand(connection: Connection) -> None:
    """Do what the migrations of a next version may do."""
    for statement in STATEMENTS:
        connection.write(statement)
    rows = {VERSION: NEXT_SCHEMA, USABLE_BY: NEWEST_SCHEMA}
    for key, value in rows.items():
        connection.write("UPDATE meta SET value = :value WHERE key = :key", key=key, value=value)


@pytest.fixture(params=["sqlite", "postgresql", "simulated"])
async def each_store(request: pytest.FixtureRequest, path: Path) -> AsyncIterator[Store]:
    """The stores and the simulator's: a restart must load the same from all."""
    if request.param == "simulated":
        yield MemoryStore()
        return
    if request.param == "sqlite":
        opened: Store = await SqliteStore.open(path)
    else:
        opened = await open_leading(request.getfixturevalue("server").database())
    yield opened
    await opened.close()
