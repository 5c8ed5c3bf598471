"""A small HTTP proxy on loopback that supports only CONNECT and keeps the requests."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass
class ConnectProxy:
    """`refusal` is the status line with which it answers instead of connecting."""

    url: str = ""
    refusal: str = ""
    asked: list[str] = field(default_factory=list)
    authorizations: list[str] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one client until it disconnects."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, target, _ = head[0].split(" ")
        self.asked.append(f"{method} {target}")
        self.authorizations += [
            line.partition(": ")[2]
            for line in head
            if line.lower().startswith("proxy-authorization:")
        ]
        if self.refusal or method != "CONNECT":
            status = self.refusal or "405 Method Not Allowed"
            writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode())
            writer.close()
            return
        host, _, port = target.rpartition(":")
        there_reader, there_writer = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        async with asyncio.TaskGroup() as group:
            group.create_task(_pass_on(reader, there_writer))
            group.create_task(_pass_on(there_reader, writer))


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


@asynccontextmanager
async def connect_proxy() -> AsyncIterator[ConnectProxy]:
    """A proxy that listens on a free port."""
    proxy = ConnectProxy()
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    proxy.url = f"http://{host}:{port}"
    yield proxy
    server.close()
