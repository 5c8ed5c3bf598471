"""A provider is used after its first listing, and after the other providers had time for theirs."""

import asyncio
from collections.abc import Collection

from autoscaler.controller.machines.opening import (
    AGAIN,
    LISTED_TOGETHER,
    READ_AGAIN_EVERY,
    ProviderOpener,
)
from autoscaler.controller.system import SystemClock
from autoscaler.model.identifiers import ProviderName
from tests.controller.virtual_time import on_virtual_time

EAST, WEST = ProviderName("east"), ProviderName("west")


class Market:
    """Some providers. `listed_after` has the seconds that each listing takes, `failures` how many fail."""

    def __init__(self, listed_after: dict[ProviderName, float], failures: int = 0) -> None:
        self.began = asyncio.get_running_loop().time()
        self.sold: list[tuple[float, set[ProviderName]]] = []
        self.asked: list[float] = []
        self.failures = failures
        self.listed_after = listed_after
        self.opening = ProviderOpener(listed_after, self._list, self._use_offerings, SystemClock())

    def _now(self) -> float:
        return asyncio.get_running_loop().time() - self.began

    async def _list(self, name: ProviderName) -> bool:
        self.asked.append(self._now())
        await asyncio.sleep(self.listed_after[name])
        self.failures -= 1
        return self.failures < 0

    def _use_offerings(self, opened: Collection[ProviderName]) -> None:
        self.sold.append((self._now(), set(opened)))


@on_virtual_time
async def test_a_single_provider_is_used_after_its_first_listing() -> None:
    market = Market({EAST: 2.0})
    task = asyncio.create_task(market.opening.run())
    await asyncio.sleep(1.0)
    assert (market.opening.opened, market.opening.unopened) == (set(), [EAST])
    await asyncio.sleep(1.5)
    assert market.sold == [(2.0, {EAST})]
    assert (market.opening.opened, market.opening.unopened) == ({EAST}, [])
    await task


@on_virtual_time
async def test_several_providers_are_used_after_all_of_them_are_listed() -> None:
    market = Market({EAST: 2.0, WEST: 9.0})
    task = asyncio.create_task(market.opening.run())
    await asyncio.sleep(3.0)
    assert market.opening.opened == {EAST}, "its machines are known: they may attest"
    assert market.sold == []
    await task
    assert market.sold == [(9.0, {EAST, WEST})] * 2


@on_virtual_time
async def test_a_provider_that_cannot_be_listed_delays_the_others_for_half_a_minute() -> None:
    market = Market({EAST: 2.0, WEST: 500.0})
    await market.opening.run()
    assert market.sold == [(LISTED_TOGETHER, {EAST}), (500.0, {EAST, WEST})]


@on_virtual_time
async def test_opening_a_provider_is_retried_with_exponential_backoff() -> None:
    market = Market({EAST: 0.0}, failures=9)
    await market.opening.run()
    waits = [
        later - earlier for earlier, later in zip(market.asked, market.asked[1:], strict=False)
    ]
    assert waits == [AGAIN.first * 2.0**n for n in range(4)] + [AGAIN.longest] * 5


@on_virtual_time
async def test_the_offerings_of_open_providers_are_read_again_daily() -> None:
    market = Market({EAST: 2.0, WEST: 3.0})
    read: list[tuple[float, ProviderName]] = []

    async def note(name: ProviderName) -> None:
        read.append((market._now(), name))

    daily = asyncio.create_task(market.opening.read_daily(note))
    await market.opening.run()
    market.sold.clear()
    await asyncio.sleep(2 * READ_AGAIN_EVERY)
    days = (READ_AGAIN_EVERY, 2 * READ_AGAIN_EVERY)
    assert read == [(day, name) for day in days for name in (EAST, WEST)]
    assert market.sold == [(day, {EAST, WEST}) for day in days]
    daily.cancel()
