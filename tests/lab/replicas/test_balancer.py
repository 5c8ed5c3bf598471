"""The balancer: it sends connections to replicas that are ready, and repeats nothing."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
import pytest
from aiohttp import web

from lab.fleet import Probe
from lab.ports import free_ports
from lab.replicas.balancer import Balancer
from tests.patience import PATIENCE


class Replica:
    """A server that says its name, and whether it is ready."""

    def __init__(self, name: str, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.ready = True
        self.held = asyncio.Event()
        """Whether a request for /hold has come, which is never answered."""
        self.breaks = asyncio.Event()
        """Set to have its connection end."""
        self._name = name
        self._port = port
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        app = web.Application()
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/name", self._answer)
        app.router.add_get("/hold", self._hold)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()

    async def close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _readyz(self, _: web.Request) -> web.Response:
        return web.Response(status=200 if self.ready else 503)

    async def _answer(self, _: web.Request) -> web.Response:
        return web.Response(text=self._name * 100_000)

    async def _hold(self, request: web.Request) -> web.Response:
        self.held.set()
        await self.breaks.wait()
        assert request.transport is not None
        request.transport.abort()
        return web.Response()


Pair = tuple[Replica, Replica, Balancer]


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    public, *own = free_ports(3)
    first, second = (Replica(name, port) for name, port in zip("ab", own, strict=True))
    balancer = Balancer(public, [first.url, second.url], Probe(every=0.02))
    for replica in (first, second):
        await replica.start()
    await balancer.start()
    yield first, second, balancer
    await balancer.close()
    for replica in (first, second):
        await replica.close()


async def answer(balancer: Balancer, path: str = "/name") -> str:
    """Return which replica answers on a new connection, or a blank if none does."""
    async with aiohttp.ClientSession() as session:
        try:
            async with session.get(f"{balancer.url}{path}") as found:
                text = await found.text()
        except aiohttp.ClientError:
            return ""
    assert len(text) == 100_000, "the whole answer"
    return text[0]


async def until(what: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not await what():  # noqa: ASYNC110 - what is waited for is another task's doing
            await asyncio.sleep(0.01)


async def answers(balancer: Balancer) -> set[str]:
    return {await answer(balancer) for _ in range(2)}


async def test_ready_replicas_take_turns(pair: Pair) -> None:
    *_, balancer = pair
    await until(lambda: _is(answers(balancer), {"a", "b"}))
    assert await answers(balancer) == {"a", "b"}


async def test_a_replica_that_is_not_ready_gets_no_connection(pair: Pair) -> None:
    first, second, balancer = pair
    await until(lambda: _is(answers(balancer), {"a", "b"}))
    first.ready = False
    await until(lambda: _is(answers(balancer), {"b"}))
    second.ready = False
    await until(lambda: _is(answers(balancer), {""}))
    first.ready = True
    await until(lambda: _is(answers(balancer), {"a"}))


async def test_a_replica_that_becomes_unready_loses_its_connections(pair: Pair) -> None:
    """A suspended replica closes none itself."""
    first, second, balancer = pair
    second.ready = False
    await until(lambda: _is(answers(balancer), {"a"}))
    asked = asyncio.create_task(answer(balancer, "/hold"))
    async with asyncio.timeout(PATIENCE):
        await first.held.wait()
        first.ready = False
        assert await asked == ""
        first.breaks.set()


async def test_a_request_to_a_replica_that_ends_is_not_repeated(pair: Pair) -> None:
    first, second, balancer = pair
    second.ready = False
    await until(lambda: _is(answers(balancer), {"a"}))
    asked = asyncio.create_task(answer(balancer, "/hold"))
    async with asyncio.timeout(PATIENCE):
        await first.held.wait()
        second.ready = True
        await until(lambda: _is(answers(balancer), {"a", "b"}))
        first.breaks.set()
        assert await asked == ""
    assert not second.held.is_set()


async def _is(found: Awaitable[set[str]], expected: set[str]) -> bool:
    return await found == expected
