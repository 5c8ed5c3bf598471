"""What only the embedded store has: a file with its companions, and its size on the disk."""

import asyncio
import random
import stat
from pathlib import Path

import pytest

from autoscaler.controller.ports.store import (
    Delivery,
)
from autoscaler.store.sqlite.store import SqliteStore
from tests.store.records import delivery


def size_of(path: Path) -> int:
    return path.stat().st_size


async def test_the_file_shrinks_after_pruning(path: Path) -> None:
    store = await SqliteStore.open(path)
    noise = random.Random(1)
    kept = [Delivery(str(n), "workflow_job", 100.0, noise.randbytes(20_000)) for n in range(400)]
    await asyncio.gather(*(store.accept(one) for one in kept))
    await store.commit([], [], applied=[one.key for one in kept[1:]])
    await store.prune(200.0)
    await store.close()
    assert size_of(path) < 400_000
    store = await SqliteStore.open(path)
    assert (await store.load(0.0)).unapplied == (kept[0],)
    await store.close()


async def test_only_the_owner_can_read_the_store_and_its_log_files(path: Path) -> None:
    _left_readable(path)
    store = await SqliteStore.open(path)
    await store.accept(delivery("a"))
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    await store.close()
    assert set(modes) == {"state.db", "state.db-wal", "state.db-shm", "state.db.lock"}
    assert set(modes.values()) == {0o600}


def _left_readable(path: Path) -> None:
    path.touch(0o644)


@pytest.mark.case(
    "the store's companion files are readable for others",
    topic="Hostile input",
    source="SQLite: WAL",
)
async def test_a_store_file_readable_by_others_is_restricted_to_its_owner(
    path: Path,
) -> None:
    store = await SqliteStore.open(path)
    await store.accept(delivery("a"))
    left = [path.with_name(path.name + suffix) for suffix in ("", "-wal", "-shm", ".lock")]
    copies = [file.read_bytes() for file in left]
    await store.close()
    for file, content in zip(left, copies, strict=True):
        file.write_bytes(content)
        file.chmod(0o666)
    again = await SqliteStore.open(path)
    await again.accept(delivery("b"))
    assert {file.name: stat.S_IMODE(file.stat().st_mode) for file in left} == {
        file.name: 0o600 for file in left
    }
    assert [d.id for d in (await again.load(0.0)).unapplied] == ["a", "b"]
    await again.close()


async def test_every_commit_is_synced(store: SqliteStore) -> None:
    async def pragma(name: str) -> object:
        return await store._transact(lambda c: c.read(f"PRAGMA {name}")[0][0])

    assert (await pragma("journal_mode"), await pragma("synchronous")) == ("wal", 2)
