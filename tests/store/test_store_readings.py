"""Readings in the store: the last ones of each provider and kind."""

from dataclasses import replace
from pathlib import Path

import pytest

from autoscaler.controller.ports.store import StoreError
from autoscaler.model.identifiers import ProviderName
from autoscaler.model.prices_and_quotas import Reading, ReadingKind
from autoscaler.store.sqlite.file import SqliteFile
from autoscaler.store.sqlite.store import SqliteStore

EAST, WEST = ProviderName("east"), ProviderName("west")
SPOT, QUOTA = ReadingKind.SPOT_PRICE, ReadingKind.QUOTA
A = Reading("g5.xlarge/linux/us-east-1a", 0.41, 1.8e9)
B = Reading("g5.xlarge/linux/us-east-1b", 0.52, 1.8e9)
NOTHING_OF_P = Reading("on-demand/P", 0.0, 1.8e9)


async def test_readings_survive_a_restart_and_each_kind_replaces_only_itself(
    tmp_path: Path,
) -> None:
    store = await SqliteStore.open(tmp_path / "state.db")
    assert await store.load_readings(EAST, SPOT) == ()
    await store.save_readings(EAST, QUOTA, [NOTHING_OF_P])
    await store.save_readings(EAST, SPOT, [B, A])
    await store.save_readings(WEST, SPOT, [A])
    cheaper = replace(B, value=0.4, read_at=1.8e9 + 3600)
    await store.save_readings(EAST, SPOT, [cheaper])
    await store.close()
    again = await SqliteStore.open(tmp_path / "state.db")
    assert await again.load_readings(EAST, SPOT) == (cheaper,)
    assert await again.load_readings(WEST, SPOT) == (A,)
    assert await again.load_readings(EAST, QUOTA) == (NOTHING_OF_P,), "zero is a quota"
    assert await again.load_readings(WEST, QUOTA) == ()
    await again.close()


@pytest.mark.parametrize(
    "broken", [{"value": -1.0}, {"value": float("inf")}, {"read_at": float("inf")}]
)
async def test_a_row_that_makes_no_sense_is_omitted(
    tmp_path: Path, broken: dict[str, float]
) -> None:
    path = tmp_path / "state.db"
    store = await SqliteStore.open(path)
    await store.save_readings(EAST, SPOT, [A, B])
    await store.close()
    file = SqliteFile(path)
    ((column, value),) = broken.items()
    changed = f"UPDATE readings SET {column} = :value WHERE name = :name"
    file.transaction(lambda c: c.write(changed, value=value, name=A.name))
    file.close()
    store = await SqliteStore.open(path)
    assert await store.load_readings(EAST, SPOT) == (B,)
    await store.close()


@pytest.mark.parametrize("reading", [replace(A, value=float("nan")), replace(A, name="a\0")])
async def test_a_reading_that_cannot_be_stored_is_refused_and_nothing_changes(
    tmp_path: Path, reading: Reading
) -> None:
    store = await SqliteStore.open(tmp_path / "state.db")
    await store.save_readings(EAST, SPOT, [B])
    with pytest.raises(StoreError):
        await store.save_readings(EAST, SPOT, [reading])
    assert await store.load_readings(EAST, SPOT) == (B,)
    await store.close()
