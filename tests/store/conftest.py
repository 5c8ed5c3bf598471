"""A store on a real file, closed after the test, and the simulator's store."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from autoscaler.controller.ports.store import Store
from autoscaler.simulator.world.controller.store import MemoryStore
from autoscaler.store.sqlite.store import SqliteStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    opened = await SqliteStore.open(path)
    yield opened
    await opened.close()


@pytest.fixture(params=["sqlite", "simulated"])
def each_store(request: pytest.FixtureRequest, store: SqliteStore) -> Store:
    """The store and the simulator's: a restart must load the same from both."""
    return store if request.param == "sqlite" else MemoryStore()
