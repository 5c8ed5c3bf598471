"""A load balancer on loopback: passes each TCP connection on to a replica that is ready."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from urllib.parse import urlsplit

import aiohttp

from lab.fleet import Probe

_PIECE = 65_536


class Balancer:
    """Takes turns among the replicas that are ready. It repeats nothing.

    A replica that is not ready any more loses its connections, and without a ready replica a new connection is
    closed at once.
    """

    def __init__(self, port: int, replicas: Sequence[str], probe: Probe | None = None) -> None:
        """`replicas` are their URLs on this host."""
        self.url = f"http://127.0.0.1:{port}"
        self._port = port
        self._probe = probe or Probe()
        self._replicas = list(replicas)
        self._connections: dict[str, set[asyncio.Task[None]]] = {url: set() for url in replicas}
        self._ready: set[str] = set()
        self._failures: Counter[str] = Counter()
        self._turns = 0
        self._looking: asyncio.Task[None] | None = None
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._port)
        self._looking = asyncio.create_task(self._look_repeatedly())

    def add(self, url: str) -> None:
        """Send new connections also to this replica, which is ready."""
        self._replicas.append(url)
        self._connections[url] = set()
        self._ready.add(url)

    def remove(self, url: str) -> None:
        """Send no new connection to this replica. Those that it has stay."""
        self._replicas.remove(url)
        self._ready.discard(url)

    async def close(self) -> None:
        """Stop listening, and close all connections. Idempotent."""
        if self._server is not None:
            self._server.close()
        looking, self._looking = self._looking, None
        tasks = [one for connections in self._connections.values() for one in connections]
        tasks += [] if looking is None else [looking]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _look_repeatedly(self) -> None:
        limit = aiohttp.ClientTimeout(total=self._probe.patience)
        async with aiohttp.ClientSession(timeout=limit) as session:
            while True:
                await asyncio.gather(*(self._look(session, url) for url in self._replicas))
                await asyncio.sleep(self._probe.every)

    async def _look(self, session: aiohttp.ClientSession, url: str) -> None:
        ready = False
        with suppress(aiohttp.ClientError, TimeoutError):
            async with session.get(f"{url}/readyz") as answer:
                ready = answer.status == 200
        if url not in self._replicas:
            return
        if ready:
            self._failures[url] = 0
            self._ready.add(url)
            return
        self._failures[url] += 1
        if self._failures[url] >= self._probe.failures:
            self._ready.discard(url)
            for connection in self._connections[url]:
                connection.cancel()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ready = [url for url in self._replicas if url in self._ready]
        if not ready:
            writer.close()
            return
        self._turns += 1
        url = ready[self._turns % len(ready)]
        passing = asyncio.create_task(_pass_on(reader, writer, url))
        self._connections[url].add(passing)
        passing.add_done_callback(self._connections[url].discard)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, url: str) -> None:
    """Pass bytes on in both directions until one side closes."""
    place = urlsplit(url)
    try:
        with suppress(OSError):
            there, back = await asyncio.open_connection(place.hostname, place.port)
            try:
                ways = {asyncio.create_task(_copy(reader, back))}
                ways.add(asyncio.create_task(_copy(there, writer)))
                try:
                    await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for way in ways:
                        way.cancel()
                    await asyncio.wait(ways)
            finally:
                back.close()
    finally:
        writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while piece := await reader.read(_PIECE):
            writer.write(piece)
            await writer.drain()
