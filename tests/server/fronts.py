"""A webhook server with the real signature check, parser and store, for requests of arbitrary bytes."""

import asyncio
import hmac
import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from autoscaler.server.listening.serving import Serving
from tests.patience import PATIENCE
from tests.server.doubles import CountingTelemetry

SECRETS = (b"the live webhook secret", b"the one before it")
BODY_TIMEOUT = 0.2

JOB = {
    "action": "queued",
    "workflow_job": {
        "id": 29679449,
        "run_id": 940463255,
        "run_attempt": 1,
        "status": "queued",
        "name": "linux-gpu / test",
        "labels": ["self-hosted", "gpu"],
        "created_at": "2027-01-15T07:59:30Z",
    },
    "repository": {"full_name": "acme/widgets"},
}
BODY = json.dumps(JOB).encode()

Headers = tuple[tuple[bytes, bytes], ...]


def signature(body: bytes, secret: bytes = SECRETS[0], algorithm: str = "sha256") -> bytes:
    return f"{algorithm}={hmac.new(secret, body, algorithm).hexdigest()}".encode()


def headers(body: bytes, **changes: bytes | None) -> Headers:
    """Return the headers that GitHub sends. None omits one."""
    names = {"type": "Content-Type", "signature": "X-Hub-Signature-256"}
    names |= {"delivery": "X-GitHub-Delivery", "event": "X-GitHub-Event"}
    values: dict[str, bytes | None] = {
        "type": b"application/json",
        "signature": signature(body),
        "delivery": b"0b989ba4-242f-11e5-81e1-c7b6966d2516",
        "event": b"workflow_job",
    }
    given = values | changes
    return tuple((names[key].encode(), value) for key, value in given.items() if value is not None)


@dataclass
class Front:
    """A running server, and the file of its store."""

    serving: Serving
    path: Path
    telemetry: CountingTelemetry

    async def send(self, body: bytes, given: Headers, *, length: int | None = None) -> int:
        """Return the status of a POST with exactly these bytes."""
        size = len(body) if length is None else length
        lines = [b"POST /webhook HTTP/1.1", b"Host: x", b"Connection: close"]
        lines += [b"Content-Length: %d" % size, *(b"%s: %s" % pair for pair in given)]
        return await self.send_bytes(b"\r\n".join(lines) + b"\r\n\r\n" + body)

    async def send_bytes(self, sent: bytes) -> int:
        """Return the status of the answer to these bytes."""
        address = self.serving.address
        reader, writer = await asyncio.open_connection(address.host, address.port)
        try:
            writer.write(sent)
            async with asyncio.timeout(PATIENCE):
                return int((await reader.readline()).split()[1])
        finally:
            writer.close()

    def stored(self) -> list[str]:
        """Return the ids in the file, read without the process that writes it."""
        with closing(sqlite3.connect(self.path)) as connection:
            return [row[0] for row in connection.execute("SELECT id FROM inbox ORDER BY seq")]
