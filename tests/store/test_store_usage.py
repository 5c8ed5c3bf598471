"""What machines were used for, as the store adds it up by day."""

import math
from dataclasses import replace

import pytest

from autoscaler.controller.ports.store import StoreError
from autoscaler.model.accounting import MachineUse, Usage
from autoscaler.model.identifiers import ProviderName, SkuName
from autoscaler.store.sqlite.store import SqliteStore

EAST = ProviderName("east")


def used(
    day: int, dollars: float, repository: str = "", use: MachineUse = MachineUse.BOOT
) -> Usage:
    return Usage(day, EAST, SkuName("gpu"), repository, use, 60.0, dollars)


async def test_usage_adds_up_and_old_days_are_deleted(store: SqliteStore) -> None:
    await store.commit([], [], usage=[used(1, 8.0), used(2, 1.0), used(2, 2.0)])
    of_job = used(2, 16.0, "acme/widgets", MachineUse.JOB)
    await store.commit([], [], usage=[used(2, 4.0), used(3, 32.0), of_job])
    boots = replace(used(2, 39.0), seconds=240.0, times=4)
    assert sorted(await store.usage(2), key=lambda one: one.use) == [boots, of_job]
    assert {one.dollars for one in await store.usage(0)} == {47.0, 16.0}
    await store.prune(0.0, usage_before=3)
    (left,) = await store.usage(0)
    assert (left.dollars, left.times) == (32.0, 1)


async def test_usage_that_cannot_be_stored_is_refused(store: SqliteStore) -> None:
    with pytest.raises(StoreError, match="usage is not finite"):
        await store.commit([], [], usage=[used(1, math.inf)])
    assert await store.usage(0) == ()
