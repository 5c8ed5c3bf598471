"""The write-ahead log: how large the file beside the store stays."""

import asyncio
import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from autoscaler.controller.ports.store import Delivery
from autoscaler.store.sqlite.store import SqliteStore

LIMIT = 16 * 2**20
"""Bytes that SQLite leaves of a longer log (sqlite.org/pragma.html#pragma_journal_size_limit)."""

PAGES_A_CHECKPOINT = 1000
"""SQLite's own default for `wal_autocheckpoint`."""

MEGABYTE = 2**20
NOISE = random.Random(1)


@pytest.fixture
def log(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def size_of(path: Path) -> int:
    return path.stat().st_size


async def _accept(store: SqliteStore, first: int, count: int, size: int) -> None:
    """Store deliveries with random bodies, each in its own transaction."""
    for number in range(first, first + count):
        assert await store.accept(
            Delivery(str(number), "workflow_job", 100.0, NOISE.randbytes(size))
        )


def _read(path: Path) -> sqlite3.Connection:
    """Open the store as a backup does, and begin a read that keeps SQLite from emptying the log."""
    reader = sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    return reader


async def test_the_log_is_reused_from_its_start_and_does_not_grow(
    store: SqliteStore, log: Path
) -> None:
    largest = 0
    for round_ in range(12):
        await _accept(store, 10 * round_, 10, MEGABYTE // 4)
        largest = max(largest, size_of(log))
    # 30 MB were written. A page takes 24 bytes more in the log; the last delivery may be above the limit.
    assert largest < PAGES_A_CHECKPOINT * (4096 + 24) + 2 * MEGABYTE


async def test_a_log_that_grew_during_a_backup_is_cut_back(
    store: SqliteStore, path: Path, log: Path
) -> None:
    with closing(_read(path)):
        await _accept(store, 0, 24, MEGABYTE)
        assert size_of(log) > LIMIT + 4 * MEGABYTE
    await _accept(store, 24, 2, 10)
    assert size_of(log) <= LIMIT


async def test_a_log_that_grew_by_one_large_transaction_is_cut_back(
    store: SqliteStore, log: Path
) -> None:
    bodies = [NOISE.randbytes(MEGABYTE) for _ in range(24)]
    await asyncio.gather(
        *(store.accept(Delivery(str(n), "workflow_job", 100.0, b)) for n, b in enumerate(bodies))
    )
    assert size_of(log) > LIMIT + 4 * MEGABYTE
    await _accept(store, 24, 2, 10)
    assert size_of(log) <= LIMIT
