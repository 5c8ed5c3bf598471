"""How many signed deliveries a second the webhook endpoint takes, against a bare aiohttp handler.

    python benchmarks/webhook_accept.py [--deliveries 20000] [--connections 64] [--seconds 60]

The server runs in this process with an intake that keeps only ids, so the figure is HTTP,
signature and shape alone; the load comes from a second process. Both targets get the same 12 KB
bodies, turn about, three runs each; the best run of each counts. The last line is the ratio of
the two rates: 1 would mean that the endpoint costs nothing beside a handler that reads the body
and gives the same answer.

Bounded by `--deliveries` a run and `--seconds` in all. Exit status 1 when an answer was not the
expected one or the time ran out.
"""

import argparse
import asyncio
import hashlib
import hmac
import json
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import cast

import uvloop
from aiohttp import web

from autoscaler.controller.ports.store import Delivery
from autoscaler.controller.ports.telemetry import Telemetry
from autoscaler.controller.system import SystemClock
from autoscaler.github.webhook import parse_workflow_job, verify_signature
from autoscaler.model.deliveries import DeliveryAnswer
from autoscaler.model.identifiers import Address
from autoscaler.server.listening.serving import Serving
from autoscaler.server.listening.settings import ServerSettings
from autoscaler.server.webhook import WebhookEndpoint

_SECRET = b"benchmark"
_RUNS = 3
_BODY_BYTES = 12_000


@dataclass(frozen=True)
class Load:
    """One run: `deliveries` requests over `connections`, ids from `first` on."""

    port: int
    deliveries: int
    connections: int
    first: int


@dataclass(frozen=True)
class Outcome:
    """Seconds from the first byte sent to the last answer, and the statuses seen."""

    seconds: float
    statuses: Counter[str]


def _job() -> bytes:
    job = {
        "id": 29679449,
        "run_id": 940463255,
        "run_attempt": 1,
        "status": "queued",
        "name": "linux-gpu / test",
        "workflow_name": "trunk",
        "labels": ["self-hosted", "linux.g5.4xlarge.nvidia.gpu"],
        "created_at": "2027-01-15T07:59:30Z",
        "started_at": "2027-01-15T07:59:30Z",
        "steps": [],
    }
    event = {"action": "queued", "workflow_job": job, "repository": {"full_name": "acme/widgets"}}
    event["padding"] = {str(n): "https://api.github.com/repos/acme/widgets/x" for n in range(180)}
    body = json.dumps(event).encode()
    return body + b" " * (_BODY_BYTES - len(body))


def _requests(load: Load) -> Iterator[bytes]:
    body = _job()
    signature = hmac.new(_SECRET, body, hashlib.sha256).hexdigest()
    for number in range(load.first, load.first + load.deliveries):
        head = (
            "POST /webhook HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: GitHub-Hookshot/044aadd\r\n"
            f"Accept: */*\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            f"X-GitHub-Delivery: {number:08x}-242f-11e5-81e1-c7b6966d2516\r\n"
            "X-GitHub-Event: workflow_job\r\nX-GitHub-Hook-ID: 292430182\r\n"
            f"X-Hub-Signature-256: sha256={signature}\r\n\r\n"
        )
        yield head.encode() + body


class _Counting(Telemetry):
    """Counts deliveries."""

    def __init__(self) -> None:
        self.deliveries: Counter[DeliveryAnswer] = Counter()

    def delivery(self, answer: DeliveryAnswer) -> None:
        self.deliveries[answer] += 1


class _Peer(asyncio.Protocol):
    """Sends the next request when the last one is answered; answers fit into one segment."""

    def __init__(self, requests: Iterator[bytes], statuses: Counter[str]) -> None:
        self._requests = requests
        self._statuses = statuses
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(
            asyncio.Transport, transport
        )  # uvloop's are of no class of asyncio's
        self._send()

    def data_received(self, data: bytes) -> None:
        self._statuses[data[9:12].decode("latin-1")] += 1
        self._send()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.ended.set_result(None)

    def _send(self) -> None:
        request = next(self._requests, None)
        if request is None:
            self._transport.close()
        else:
            self._transport.write(request)


async def _apply(load: Load) -> Outcome:
    loop = asyncio.get_running_loop()
    statuses: Counter[str] = Counter()
    requests = _requests(load)
    began = time.perf_counter()
    peers = [
        (await loop.create_connection(lambda: _Peer(requests, statuses), "127.0.0.1", load.port))[1]
        for _ in range(load.connections)
    ]
    await asyncio.gather(*(peer.ended for peer in peers))
    return Outcome(time.perf_counter() - began, statuses)


def _drive(orders: Connection) -> None:
    """The second process: one outcome for each load, until there is none."""
    while (load := orders.recv()) is not None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            orders.send(runner.run(_apply(load)))


def _endpoint() -> WebhookEndpoint:
    kept: set[str] = set()

    async def accept(delivery: Delivery) -> bool:
        await asyncio.sleep(0)
        before = len(kept)
        kept.add(delivery.id)
        return len(kept) > before

    def verify(body: bytes, header: str | None) -> bool:
        return verify_signature(body, header, [_SECRET])

    def take(delivery: Delivery) -> Awaitable[bool]:
        parse_workflow_job(delivery.body, delivery.received_at)
        return accept(delivery)

    return WebhookEndpoint(verify, take, SystemClock(), _Counting())


async def _bare() -> tuple[web.AppRunner, int]:
    async def read(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(
            status=202, body=b'{"result":"accepted"}', content_type="application/json"
        )

    app = web.Application()
    app.router.add_post("/webhook", read)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    return runner, site.port


async def _outcome(orders: Connection) -> Outcome:
    arrived = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(orders.fileno(), arrived.set)
    try:
        await arrived.wait()
    finally:
        loop.remove_reader(orders.fileno())
    outcome = orders.recv()
    assert isinstance(outcome, Outcome)
    return outcome


async def _measure(orders: Connection, options: argparse.Namespace) -> dict[str, float]:
    """Deliveries a second by target. Raises RuntimeError on an answer that was not 202."""
    runner, bare = await _bare()
    settings = ServerSettings(listen=Address("127.0.0.1", 0))
    best = {"bare": 0.0, "webhook": 0.0}
    async with asyncio.timeout(options.seconds), Serving(settings, _endpoint(), []) as serving:
        for run in range(_RUNS):
            for name, port in (("bare", bare), ("webhook", serving.address.port)):
                first = run * options.deliveries
                orders.send(Load(port, options.deliveries, options.connections, first))
                busy = time.process_time()
                outcome = await _outcome(orders)
                busy = (time.process_time() - busy) / options.deliveries * 1e6
                if outcome.statuses != {"202": options.deliveries}:
                    raise RuntimeError(f"{name}: answers {dict(outcome.statuses)}")
                rate = options.deliveries / outcome.seconds
                _say(f"{name:8} run {run + 1}: {rate:8.0f}/s  {busy:6.1f} us of CPU each")
                best[name] = max(best[name], rate)
    await runner.cleanup()
    return best


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--deliveries", type=int, default=20_000, help="in each run")
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60.0, help="in all")
    return parser.parse_args()


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    """Measure and print; the exit status."""
    options = _options()
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    driver = context.Process(target=_drive, args=(theirs,), daemon=True)
    driver.start()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            best = runner.run(_measure(ours, options))
    except (RuntimeError, TimeoutError) as error:
        _say(f"failed: {str(error) or 'out of time'}")
        return 1
    finally:
        driver.terminate()
        driver.join()
    _say(f"ratio webhook/bare: {best['webhook'] / best['bare']:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
