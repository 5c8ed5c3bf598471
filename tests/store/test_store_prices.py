"""Prices are kept in the store: by provider and capacity type, the last ones alone."""

from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import update

from autoscaler.controller.ports.store import StoreError
from autoscaler.model.catalogue import CapacityType, OperatingSystem
from autoscaler.model.identifiers import ProviderName
from autoscaler.model.prices import Price
from autoscaler.store.sqlite import SqliteStore
from autoscaler.store.sqlite_file import SqliteFile
from autoscaler.store.tables import prices

EAST, WEST = ProviderName("east"), ProviderName("west")
LINUX = OperatingSystem.LINUX
ON_DEMAND = Price(CapacityType.ON_DEMAND, "g5.xlarge", LINUX, "", 1.006, 1.8e9)
WINDOWS = replace(ON_DEMAND, os=OperatingSystem.WINDOWS, dollars_per_hour=1.19)
SPOT_A = Price(CapacityType.SPOT, "g5.xlarge", LINUX, "us-east-1a", 0.41, 1.8e9)
SPOT_B = replace(SPOT_A, zone="us-east-1b", dollars_per_hour=0.52)


async def test_prices_are_there_after_a_restart_each_kind_replaced_by_itself(
    tmp_path: Path,
) -> None:
    store = await SqliteStore.open(tmp_path / "state.db")
    assert await store.load_prices() == {}
    await store.save_prices(EAST, CapacityType.ON_DEMAND, [ON_DEMAND, WINDOWS])
    await store.save_prices(EAST, CapacityType.SPOT, [SPOT_A, SPOT_B])
    await store.save_prices(WEST, CapacityType.SPOT, [SPOT_A])
    cheaper = replace(SPOT_B, dollars_per_hour=0.4, read_at=1.8e9 + 3600)
    await store.save_prices(EAST, CapacityType.SPOT, [cheaper])
    await store.close()
    again = await SqliteStore.open(tmp_path / "state.db")
    found = await again.load_prices()
    await again.close()
    assert {name: set(known) for name, known in found.items()} == {
        EAST: {ON_DEMAND, WINDOWS, cheaper},
        WEST: {SPOT_A},
    }


@pytest.mark.parametrize(
    "broken", [{"os": "beos"}, {"dollars_per_hour": -1.0}, {"read_at": float("inf")}]
)
async def test_a_row_that_makes_no_sense_is_left_out(
    tmp_path: Path, broken: dict[str, object]
) -> None:
    path = tmp_path / "state.db"
    store = await SqliteStore.open(path)
    await store.save_prices(EAST, CapacityType.SPOT, [SPOT_A, SPOT_B])
    await store.close()
    file = SqliteFile(path)
    file.transaction(
        lambda c: c.execute(update(prices).where(prices.c.zone == SPOT_A.zone).values(**broken))
    )
    file.close()
    store = await SqliteStore.open(path)
    assert await store.load_prices() == {EAST: (SPOT_B,)}
    await store.close()


@pytest.mark.parametrize(
    "price", [replace(SPOT_A, dollars_per_hour=float("nan")), replace(SPOT_A, zone="a\0")]
)
async def test_a_price_that_cannot_be_stored_is_refused_and_nothing_changes(
    tmp_path: Path, price: Price
) -> None:
    store = await SqliteStore.open(tmp_path / "state.db")
    await store.save_prices(EAST, CapacityType.SPOT, [SPOT_B])
    with pytest.raises(StoreError):
        await store.save_prices(EAST, CapacityType.SPOT, [price])
    assert await store.load_prices() == {EAST: (SPOT_B,)}
    await store.close()
