"""A steady stream of signed deliveries from a process of its own, each counted from when it was due.

It does not wait for an answer before it sends the next: a server that falls behind is seen to. It
speaks HTTP/1.1 over connections that it keeps: a whole HTTP client takes three times the CPU, on a
host that the server shares.
"""

import asyncio
import gc
import hmac
import itertools
import json
import random
import re
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from functools import cache
from typing import cast
from urllib.parse import urlsplit

import uvloop

BODY_BYTES = 12_000
PADDINGS = 64
"""Different ones: made once, so that the load takes little of the host's time."""

FIRST_JOB = 10**12
"""Job ids that no laboratory gives."""

CONNECTIONS = 256
LOST = 0
"""Counted as the status of a delivery whose connection was closed before its answer."""

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)


@cache
def padding(number: int) -> str:
    """A JSON object of fields that bring a body to its size and compress no better than real ones.

    A body of GitHub's has about 1 KB in a frame with the store's dictionary, and a quarter of its
    size without: so these have 1.4 KB of chance among addresses.
    """
    chance = random.Random(number)
    url = "https://api.github.com/repos/acme/widgets/"
    fields = {f"field_{n}_url": f"{url}{chance.randbytes(12).hex()}" for n in range(120)}
    size = sum(len(name) + len(text) + 8 for name, text in fields.items())
    return json.dumps({"fields": fields, "rest": url * max(0, (BODY_BYTES - size) // len(url))})


@dataclass(frozen=True, slots=True)
class Stream:
    """Where to send what: `rate` deliveries a second for `seconds`, of jobs with this label.

    Every job is queued by one delivery and ended by the next. `ahead` is how many seconds the
    controller's clock is ahead of the host's. `first_job` is the ID of the first job.
    """

    url: str
    secret: bytes = field(repr=False)
    repository: str
    label: str
    rate: float
    seconds: float
    ahead: float = 0.0
    first_job: int = FIRST_JOB


@dataclass(frozen=True, slots=True)
class Answers:
    """Milliseconds from the moment when each was due to its answer, in order of size.

    `cpu_us` is the CPU time that sending took, in microseconds a delivery.
    """

    waits_ms: list[float]
    statuses: Counter[int]
    cpu_us: float

    def quantile(self, percent: float) -> float:
        """Such as 99."""
        place = min(int(len(self.waits_ms) * percent / 100), len(self.waits_ms) - 1)
        return round(self.waits_ms[place], 1)


@dataclass(slots=True, eq=False, repr=False)
class _Sender:
    """Sends each delivery over an idle connection, or once one is idle where all are busy."""

    host: str
    port: int
    waits: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    idle: "list[_Connection]" = field(default_factory=list)
    queue: deque[tuple[bytes, float]] = field(default_factory=deque)
    opened: int = 0
    opening: set[asyncio.Task[object]] = field(default_factory=set)
    due: int = 0
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def send(self, request: bytes, due: float) -> None:
        self.due += 1
        if self.idle:
            self.idle.pop().send(request, due)
            return
        self.queue.append((request, due))
        if self.opened < CONNECTIONS:
            self.opened += 1
            loop = asyncio.get_running_loop()
            opening = loop.create_task(
                loop.create_connection(lambda: _Connection(self), self.host, self.port)
            )
            self.opening.add(opening)
            opening.add_done_callback(self._opened)

    def _opened(self, opening: asyncio.Task[object]) -> None:
        self.opening.discard(opening)
        if opening.cancelled():
            return
        if opening.exception() is not None:
            self.opened -= 1
            if self.queue:
                self.answered(LOST, self.queue.popleft()[1])

    def answered(self, status: int, due: float) -> None:
        self.statuses[status] += 1
        self.waits.append(1000.0 * (time.perf_counter() - due))
        self.ended.set()

    def release(self, connection: "_Connection") -> None:
        if self.queue:
            connection.send(*self.queue.popleft())
        else:
            self.idle.append(connection)

    async def finish(self) -> None:
        """Wait for every answer."""
        while len(self.waits) < self.due:
            self.ended.clear()
            await self.ended.wait()


class _Connection(asyncio.Protocol):
    """One request at a time."""

    def __init__(self, sender: _Sender) -> None:
        self._sender = sender
        self._due: float | None = None
        self._received = b""

    def send(self, request: bytes, due: float) -> None:
        self._due = due
        self._transport.write(request)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's are of no class of asyncio's
        self._transport = cast(asyncio.Transport, transport)
        self._sender.release(self)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, body = self._received.partition(b"\r\n\r\n")
        length = _LENGTH.search(head + b"\r\n")
        if not end or length is None or len(body) < int(length[1]) or self._due is None:
            return
        self._sender.answered(int(head[9:12]), self._due)
        self._received, self._due = b"", None
        self._sender.release(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        sender = self._sender
        sender.opened -= 1
        if self in sender.idle:
            sender.idle.remove(self)
        if self._due is not None:
            sender.answered(LOST, self._due)


def send(stream: Stream) -> Answers:
    """Send it all; for a process of its own."""
    gc.disable()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_send(stream))


async def _send(stream: Stream) -> Answers:
    url = urlsplit(stream.url)
    sender = _Sender(url.hostname or "", url.port or 80)
    busy = time.process_time()
    began = time.perf_counter()
    for number in itertools.count():
        due = began + number / stream.rate
        if due - began >= stream.seconds:
            break
        request = make_request(stream, url.path, number)
        if (left := due - time.perf_counter()) > 0:
            await asyncio.sleep(left)
        elif not number % 16:
            await asyncio.sleep(0)  # late: answers are to be received all the same
        sender.send(request, due)
    await sender.finish()
    busy = time.process_time() - busy
    waits = sorted(sender.waits)
    return Answers(waits, sender.statuses, round(busy / len(waits) * 1e6, 1))


def make_request(stream: Stream, path: str, number: int) -> bytes:
    """Return the HTTP request of the delivery with this number."""
    body, headers = _delivery(stream, number)
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {urlsplit(stream.url).netloc}\r\nAccept: */*\r\n"
        f"User-Agent: GitHub-Hookshot/044aadd\r\nContent-Length: {len(body)}\r\n{lines}\r\n"
    )
    return head.encode() + body


def _delivery(stream: Stream, number: int) -> tuple[bytes, dict[str, str]]:
    action = "completed" if number % 2 else "queued"
    job = {
        "id": stream.first_job + number // 2,
        "run_id": stream.first_job + number // 2,
        "run_attempt": 1,
        "status": action,
        "conclusion": "cancelled" if number % 2 else None,
        "labels": [stream.label],
        "created_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + stream.ahead)),
    }
    event = {
        "action": action,
        "workflow_job": job,
        "repository": {"full_name": stream.repository},
    }
    body = f"{json.dumps(event)[:-1]}, {padding(number % PADDINGS)[1:]}".encode()
    signature = hmac.digest(stream.secret, body, "sha256").hex()
    headers = {
        "Content-Type": "application/json",
        "X-GitHub-Delivery": f"{number:08x}-0000-11ef-8000-{stream.first_job:012x}",
        "X-GitHub-Event": "workflow_job",
        "X-Hub-Signature-256": f"sha256={signature}",
    }
    return body, headers
