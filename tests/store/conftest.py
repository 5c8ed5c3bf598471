"""A store on a real file, closed after the test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from autoscaler.store.sqlite import SqliteStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    opened = await SqliteStore.open(path)
    yield opened
    await opened.close()
