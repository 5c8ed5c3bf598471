"""The memory budget of request bodies: slow bodies are aborted for new ones, over real sockets."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer

from autoscaler.server.bodies import Bodies, BodyRefusedError
from tests.patience import PATIENCE
from tests.server.fakes import until

LIMIT, TOGETHER = 1000, 4000


@dataclass
class LengthServer:
    """Answers the length of what it has read, or why it has not; holds what it read while `busy`."""

    bodies: Bodies = field(default_factory=lambda: Bodies(LIMIT, 10.0, TOGETHER))
    port: int = 0
    begun: int = 0
    held: int = 0
    free: asyncio.Event = field(default_factory=asyncio.Event)

    async def handle(self, request: web.Request) -> web.Response:
        self.begun += 1
        try:
            async with self.bodies.read(request) as body:
                self.held += 1
                await self.free.wait()
                return web.Response(text=str(len(body)))
        except BodyRefusedError as refused:
            return web.Response(text=refused.reason)

    @asynccontextmanager
    async def sending(self, length: int, sent: int) -> AsyncIterator[asyncio.Task[str]]:
        """A connection that has sent a part of a body, and its later answer."""
        before = self.begun
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        head = (
            f"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
        )
        writer.write(head.encode() + b"x" * sent)
        await writer.drain()

        async def answer() -> str:
            head = await reader.readuntil(b"\r\n\r\n")
            length = head.lower().partition(b"content-length: ")[2].partition(b"\r")[0]
            return (await reader.readexactly(int(length))).decode()

        task = asyncio.create_task(answer())
        await until(lambda: self.begun > before)
        try:
            yield task
        finally:
            task.cancel()
            writer.close()
            await asyncio.wait({task})

    async def send(self, length: int) -> str:
        async with asyncio.timeout(PATIENCE), self.sending(length, length) as answer:
            return await answer


@pytest_asyncio.fixture
async def lengths() -> AsyncIterator[LengthServer]:
    lengths = LengthServer()
    lengths.free.set()
    app = web.Application()
    app.router.add_post("/", lengths.handle)
    server = TestServer(app)
    await server.start_server()
    assert server.port is not None
    lengths.port = server.port
    try:
        yield lengths
    finally:
        lengths.free.set()
        await server.close()


@pytest.mark.case(
    "unsigned bodies that stop a byte short",
    topic="Hostile input",
    source="GitHub: using webhooks",
)
@pytest.mark.parametrize("length", [1, 25, LIMIT])
async def test_incomplete_bodies_do_not_block_other_bodies(
    lengths: LengthServer, length: int
) -> None:
    async with (
        lengths.sending(LIMIT, LIMIT - 1) as first,
        lengths.sending(LIMIT, LIMIT - 1) as second,
        lengths.sending(LIMIT, LIMIT - 1) as third,
        lengths.sending(LIMIT, LIMIT - 1) as last,
    ):
        assert await lengths.send(4) == "4"
        assert {first.done(), second.done(), third.done(), last.done()} == {False}
        for _ in range(20):
            assert await lengths.send(length) == str(length)
        if length > 4:
            assert await first == "busy"
        assert {second.done(), third.done(), last.done()} == {False}


async def test_a_complete_body_keeps_its_memory_budget_until_it_is_handled(
    lengths: LengthServer,
) -> None:
    """With a slow store no complete body is aborted, and the next one is refused at once."""
    lengths.free.clear()
    waiting = [asyncio.create_task(lengths.send(LIMIT)) for _ in range(4)]
    await until(lambda: lengths.held == 4)
    assert await lengths.send(1) == "busy"
    lengths.free.set()
    assert [await one for one in waiting] == [str(LIMIT)] * 4
    assert await lengths.send(LIMIT) == str(LIMIT)


async def test_aborted_bodies_return_their_memory_budget(lengths: LengthServer) -> None:
    async with lengths.sending(LIMIT, LIMIT - 1), lengths.sending(LIMIT, LIMIT - 1):
        for _ in range(5):
            async with lengths.sending(LIMIT, LIMIT - 1), lengths.sending(LIMIT, LIMIT - 1):
                assert await lengths.send(LIMIT) == str(LIMIT)
    lengths.free.clear()
    lengths.held = 0
    waiting = [asyncio.create_task(lengths.send(LIMIT)) for _ in range(4)]
    await until(lambda: lengths.held == 4)
    lengths.free.set()
    assert [await one for one in waiting] == [str(LIMIT)] * 4
    await until(lambda: lengths.bodies == Bodies(LIMIT, 10.0, TOGETHER))
