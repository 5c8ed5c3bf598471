"""The loop of virtual time calls functions in the order in which asyncio's own loop calls them."""

import asyncio
import random
import selectors
import socket
from collections.abc import Callable
from typing import Any

import pytest

from autoscaler.simulator.world.virtual_time import CANCELLED_KEPT, OUTSIDE_EVERY, VirtualLoop
from tests.controller.virtual_time import on_virtual_time

SEEDS = 8


class _JumpingSelector(selectors.DefaultSelector):
    """Lets the time of asyncio's loop jump instead of waiting for it."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        assert timeout is not None
        self.now += timeout
        return []


class _AsyncioLoop(asyncio.SelectorEventLoop):
    """asyncio's own loop on virtual time."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


def _calls(make: Callable[[], asyncio.AbstractEventLoop], seed: int) -> list[tuple[float, int]]:
    """Return the time and the number of each call of a program that a seed chooses."""
    choice, loop, called = random.Random(seed), make(), []
    handles: list[asyncio.Handle] = []

    def call(number: int) -> None:
        called.append((loop.time(), number))
        for _ in range(choice.randrange(1, 5) if len(handles) < 1000 else 0):
            following = len(handles)
            # Whole numbers, so that many timers have the same moment.
            delay = float(choice.randrange(40))
            match choice.randrange(4):
                case 0:
                    handles.append(loop.call_soon(call, following))
                case 1:
                    handles.append(loop.call_at(loop.time() + delay, call, following))
                case _:
                    handles.append(loop.call_later(delay / 3.0, call, following))
        for _ in range(choice.randrange(3)):
            choice.choice(handles).cancel()

    async def program() -> None:
        handles.extend(
            loop.call_later(float(choice.randrange(100)), call, number)
            for number in range(4 * CANCELLED_KEPT)
        )
        await asyncio.sleep(500.0)

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(program())
    return called


@pytest.mark.parametrize("seed", range(SEEDS))
def test_calls_come_in_the_order_of_asyncios_loop(seed: int) -> None:
    called = _calls(VirtualLoop, seed)
    assert len(called) > 2 * CANCELLED_KEPT
    assert called == _calls(_AsyncioLoop, seed)


@on_virtual_time
async def test_an_error_of_a_call_goes_to_the_exception_handler() -> None:
    reported: list[BaseException] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))
    loop.call_soon(int, "no number")
    await asyncio.sleep(1.0)
    assert [type(error) for error in reported] == [ValueError]


@on_virtual_time
async def test_a_cancelled_call_is_not_made() -> None:
    called: list[str] = []
    loop = asyncio.get_running_loop()
    for handle in (
        loop.call_soon(called.append, "soon"),
        loop.call_later(1.0, called.append, "later"),
    ):
        assert not handle.cancelled()
        handle.cancel()
        assert handle.cancelled()
    await asyncio.sleep(2.0)
    assert called == []


@on_virtual_time
async def test_a_file_descriptor_is_read_while_the_time_jumps() -> None:
    loop, (near, far) = asyncio.get_running_loop(), socket.socketpair()
    with near, far:
        read: list[bytes] = []
        loop.add_reader(near, lambda: read.append(near.recv(10)))
        far.send(b"sent")
        for _ in range(2 * OUTSIDE_EVERY):
            await asyncio.sleep(1.0)
        loop.remove_reader(near)
    assert b"".join(read) == b"sent"


def test_a_loop_without_any_timer_is_an_error() -> None:
    with (
        pytest.raises(RuntimeError, match="no timer"),
        asyncio.Runner(loop_factory=VirtualLoop) as runner,
    ):
        runner.run(asyncio.Event().wait())
