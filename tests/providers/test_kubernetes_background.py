"""An iterator that is read in the background: nothing is lost, and its errors arrive."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from autoscaler.providers.kubernetes.notices.queue import Background


async def test_items_come_in_portions_and_an_error_after_them() -> None:
    began = 0

    async def numbers() -> AsyncGenerator[int, None]:
        nonlocal began
        began += 1
        for number in range(5):
            yield number
        raise ConnectionError("broken")

    background = Background(numbers)
    assert await background.take(1, 10.0) == [0]
    assert await background.take(3, 10.0) == [1, 2, 3]
    assert await background.take(3, 10.0) == [4]
    with pytest.raises(ConnectionError):
        await background.take(3, 10.0)
    # The next call iterates anew.
    assert await background.take(1, 10.0) == [0]
    assert began == 2
    await background.close()
    await background.close()


async def test_a_wait_without_items_returns_and_loses_none() -> None:
    release = asyncio.Event()

    async def one() -> AsyncGenerator[str, None]:
        await release.wait()
        yield "first"
        await asyncio.Event().wait()

    background = Background(one)
    assert await background.take(5, 0.0) == []
    waiting = asyncio.create_task(background.take(5, 600.0))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    release.set()
    assert await background.take(5, 600.0) == ["first"]
    await background.close()
