"""What a stranger who sends 200 kB a second costs the controller, and what that does to deliveries.

Run: `PYTHONPATH=. python benchmarks/attackers.py [--seconds 20] [--bytes-a-second 200000] [--attack NAME]`. The
controller, its store, its webhook and bootstrap endpoints are the product's own, in this process, with 3,500
machines at work (`full_fleet.py`). One process sends 20 signed deliveries a second, and another one the attack:
requests of one kind over connections of its own, at this rate. The first row has no attacker.

Prints a row for each attack: the requests that were sent, the CPU time of the controller in percent of a core
(without what the first row needs), and how long deliveries took until they were durable. Wanted: at most 5 %
and 50 ms. CPU time does not depend on other programs of the host; the milliseconds do.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from autoscaler.app.event_loop import new_event_loop
from autoscaler.controller.reconciler import Pace
from autoscaler.github.webhook import parse_workflow_job, verify_signature
from autoscaler.model.identifiers import Address
from autoscaler.observability.logs import LogLevel, LogStyle, configure_logging
from autoscaler.server.health import HealthEndpoint
from autoscaler.server.listening.serving import Endpoint, Serving
from autoscaler.server.listening.settings import ServerSettings
from autoscaler.server.machines.bootstrap import BootstrapEndpoint
from autoscaler.server.webhook import WebhookEndpoint
from benchmarks.console_cost import console_of
from benchmarks.crowded_fleet import REPOSITORY, Crowd
from benchmarks.full_fleet import FullFleet
from benchmarks.open_load import Answers, Stream, send

SECRET = b"benchmark"
DELIVERIES = 20.0
MACHINES, WAITING = 3500, 1000
CONNECTIONS = 32
MOST_SHARE, MOST_MS = 0.05, 50.0


def _post(path: str, body: bytes, *headers: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "Content-Type: application/json", "", ""]).encode() + body


def _exit(detail: str) -> bytes:
    body = json.dumps({"detail": detail}).encode()
    return _post(
        "/bootstrap/machines/aaaaaaaaaaaaaaaa/exit", body, f"Authorization: Bearer {'0' * 64}"
    )


def _delivery(event: str, size: int, signature: str) -> bytes:
    headers = (f"X-GitHub-Event: {event}", f"X-Hub-Signature-256: sha256={signature}")
    return _post("/webhook", b'{"a": "' + b"x" * size + b'"}', "X-GitHub-Delivery: 1", *headers)


def _attestation(proof: str) -> bytes:
    body = {"protocol": 1, "provider": "east", "proof": proof, "nonce": "0f" * 32, "agent": "1.0"}
    return _post("/bootstrap/attest", json.dumps(body).encode())


ATTACKS: dict[str, Callable[[], bytes]] = {
    "a machine's text with many word boundaries": lambda: _exit(("-a" * 149 + " ") * 54),
    "a machine's text like a token": lambda: _exit("ghs_" + "A" * 15_000),
    "a machine's text of escapes": lambda: _exit("\x1b[" * 7_000),
    "attestations of random bytes": lambda: _attestation(os.urandom(6_000).hex()),
    "attestations of nested ASN.1": lambda: _attestation("MIAwgDCA" * 1_500),
    "deliveries with a wrong signature": lambda: _delivery("workflow_job", 12_000, "0" * 64),
    "small deliveries with a wrong signature": lambda: _delivery("workflow_job", 1, "0" * 64),
    "deliveries of unused events": lambda: _delivery("push", 200_000, "0" * 64),
    "headers without end": lambda: b"GET / HTTP/1.1\r\n" + b"X-A: b\r\n" * 1_000,
    "wrong tokens for the console": lambda: (
        b"GET /jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n" % (b"0" * 64)
    ),
    "paths that are not there": lambda: b"GET /" + b"%2e/" * 500 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
}


@dataclass(frozen=True, slots=True)
class Attack:
    """Where to send which request, how many bytes a second, and for how long."""

    port: int
    name: str
    rate: float
    seconds: float


def attack(one: Attack) -> int:
    """Send it, and return how many requests were sent; for a process of its own."""
    return asyncio.run(_attack(one))


async def _attack(one: Attack) -> int:
    request = ATTACKS[one.name]()
    began, sent = time.perf_counter(), 0
    turns = asyncio.Semaphore(CONNECTIONS)
    running: set[asyncio.Task[None]] = set()

    async def ask() -> None:
        async with turns:
            try:
                async with asyncio.timeout(one.seconds):
                    reader, writer = await asyncio.open_connection("127.0.0.1", one.port)
                    writer.write(request)
                    await reader.read(65_536)
                    writer.close()
            except (OSError, TimeoutError):
                pass  # Refused, which costs an attacker as much.

    while (now := time.perf_counter() - began) < one.seconds:
        while sent * len(request) < now * one.rate:
            task = asyncio.create_task(ask())
            running.add(task)
            task.add_done_callback(running.discard)
            sent += 1
        await asyncio.sleep(0.01)
    for task in running:
        task.cancel()
    return sent


async def measure(names: list[str], rate: float, seconds: float) -> bool:
    """Print a row for each attack. Return whether each costs at most what is wanted."""
    crowd = Crowd(MACHINES, WAITING, most_machines=MACHINES, jobs_a_run=75, apart=0.0371)
    with tempfile.TemporaryDirectory() as folder:
        fleet = FullFleet(crowd, 1.0, Pace(), parse_workflow_job)
        async with fleet.at_work(Path(folder)) as process:
            webhook = WebhookEndpoint(
                lambda body, header: verify_signature(body, header, [SECRET]),
                fleet.intake.accept,
                fleet.clock,
                fleet.telemetry,
            )
            machines = BootstrapEndpoint(process.ready.bootstrap, b"agent", fleet.telemetry)
            health = HealthEndpoint(tuple, tuple, lambda: ([], "text/plain"))
            others: list[Endpoint] = [health, machines, console_of(fleet.queries)]
            settings = ServerSettings(Address("127.0.0.1", 0))
            async with Serving(settings, webhook, others) as serving:
                await _row(fleet, serving, Attack(0, "", rate, seconds))  # warms up
                quiet, _ = await _row(fleet, serving, Attack(0, "", rate, seconds))
                fine = True
                for name in names:
                    one = Attack(serving.address.port, name, rate, seconds)
                    share, slowest = await _row(fleet, serving, one, quiet)
                    fine &= share <= MOST_SHARE and slowest <= MOST_MS
                return fine


async def _row(
    fleet: FullFleet, serving: Serving, attacker: Attack, quiet: float = 0.0
) -> tuple[float, float]:
    """Print a row; return the share of a core beyond `quiet`, and the milliseconds of the slowest delivery."""
    ahead = fleet.clock.now() - time.time()
    url = f"http://{serving.address}/webhook"
    stream = Stream(url, SECRET, REPOSITORY, "label-00", DELIVERIES, attacker.seconds, ahead)
    loop = asyncio.get_running_loop()
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as others:
        # Both processes have started.
        await asyncio.gather(*(loop.run_in_executor(others, time.sleep, 0.5) for _ in range(2)))
        began, spent = time.perf_counter(), time.process_time()
        sending = loop.run_in_executor(others, send, stream)
        attacking = loop.run_in_executor(others, attack, attacker) if attacker.name else None
        answers: Answers = await sending
        share = (time.process_time() - spent) / (time.perf_counter() - began) - quiet
        sent = await attacking if attacking else 0
    refused = len(answers.waits_ms) - answers.statuses[HTTPStatus.ACCEPTED]
    slowest = answers.quantile(100)
    print(
        f"{attacker.name or 'no attacker':45}{sent:8} requests {share:7.1%} of a core   durable after"
        f" {answers.quantile(50):5.1f} ms p50 {slowest:6.1f} ms max, {refused} refused",
        flush=True,
    )
    return share, slowest


def main() -> int:
    """Exit status 1 if an attack costs more than is wanted."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--bytes-a-second", type=float, default=200_000.0)
    parser.add_argument("--attack", choices=tuple(ATTACKS))
    options = parser.parse_args()
    configure_logging(LogLevel.ERROR, LogStyle.CONSOLE)
    names = [options.attack] if options.attack else list(ATTACKS)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        fine = runner.run(measure(names, options.bytes_a_second, options.seconds))
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
