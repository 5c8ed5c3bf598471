"""A waiter wakes when its key is woken or its time is over, and leaves no timer behind."""

import asyncio

from autoscaler.controller.wakeups import Wakeups
from autoscaler.model.identifiers import Instant, Seconds
from tests.controller.virtual_time import VirtualClock, on_virtual_time


class StoppedClock(VirtualClock):
    """A clock that was set back and stands still. Sleeping still takes its time."""

    def now(self) -> Instant:
        return 1_000.0


async def _waited(wakeups: Wakeups[str], key: str, seconds: Seconds) -> Seconds:
    loop = asyncio.get_running_loop()
    began = loop.time()
    await wakeups.wait(key, seconds)
    return loop.time() - began


@on_virtual_time
async def test_each_waiter_wakes_at_its_own_deadline() -> None:
    wakeups: Wakeups[str] = Wakeups(VirtualClock())
    waits = [3.0, 1.0, 2.0, 1.0, 0.0, -1.0]
    waited = await asyncio.gather(*(_waited(wakeups, "a", wait) for wait in waits))
    assert waited == [3.0, 1.0, 2.0, 1.0, 0.0, 0.0]


@on_virtual_time
async def test_a_wakeup_wakes_only_the_waiters_of_its_key() -> None:
    wakeups: Wakeups[str] = Wakeups(VirtualClock())
    waiting = [asyncio.create_task(_waited(wakeups, key, 9.0)) for key in ("a", "a", "b")]
    await asyncio.sleep(1.0)
    wakeups.wake("a")
    wakeups.wake("a")
    wakeups.wake("unknown")
    assert await asyncio.gather(*waiting) == [1.0, 1.0, 9.0]


@on_virtual_time
async def test_wake_all_wakes_every_waiter() -> None:
    wakeups: Wakeups[str] = Wakeups(VirtualClock())
    waiting = [asyncio.create_task(_waited(wakeups, key, 9.0)) for key in ("a", "b")]
    await asyncio.sleep(1.0)
    wakeups.wake_all()
    assert await asyncio.gather(*waiting) == [1.0, 1.0]


@on_virtual_time
async def test_a_cancelled_waiter_does_not_affect_the_others() -> None:
    wakeups: Wakeups[str] = Wakeups(VirtualClock())
    gone, stays = (asyncio.create_task(_waited(wakeups, "a", wait)) for wait in (2.0, 5.0))
    await asyncio.sleep(1.0)
    gone.cancel()
    assert await stays == 5.0


@on_virtual_time
async def test_no_timer_remains_without_waiters() -> None:
    wakeups: Wakeups[str] = Wakeups(VirtualClock())
    for _ in range(2):  # and it works again afterwards
        waiting = asyncio.create_task(_waited(wakeups, "a", 9.0))
        await asyncio.sleep(1.0)
        wakeups.wake("a")
        assert await waiting == 1.0
        await asyncio.sleep(0.0)
        assert asyncio.all_tasks() == {asyncio.current_task()}


@on_virtual_time
async def test_the_wait_ends_although_the_clock_stands_still() -> None:
    assert await _waited(Wakeups(StoppedClock()), "a", 2.0) == 2.0


@on_virtual_time
async def test_waiters_of_one_key_continue_in_their_order() -> None:
    """A set of futures would have another order in each process, because of their addresses."""
    wakeups: Wakeups[str] = Wakeups(VirtualClock())
    woken: list[int] = []

    async def wait(number: int) -> None:
        await wakeups.wait("list", 60.0)
        woken.append(number)

    async with asyncio.TaskGroup() as group:
        for number in range(50):
            group.create_task(wait(number))
        await asyncio.sleep(1.0)
        wakeups.wake("list")
    assert woken == list(range(50))
