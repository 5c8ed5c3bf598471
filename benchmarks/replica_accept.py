"""Deliveries that `autoscaler serve` accepts a second over HTTP: on SQLite, and as one and two replicas.

Run: `PYTHONPATH=. python benchmarks/replica_accept.py [--seconds 5] [--rounds 3] [--folder DIR]`. Each round
starts every candidate with a new store, one after the other, in turn the other way round: SQLite, one replica
on PostgreSQL, and two. Another process sends signed deliveries of 12 KB: first as many as are answered, with
`IN_FLIGHT` connections, then `RATE` a second. COMMIT waits for the disk in both stores. The last columns are
the CPU time of each process for a delivery, in microseconds, at `RATE`. Where the cores do not suffice for two
replicas, PostgreSQL and the sender, they say what a host with more cores would do.
"""

import argparse
import asyncio
import gc
import multiprocessing
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

import psutil
import uvloop

from benchmarks.open_load import Stream, make_request, send
from tests.config.fleet_file import NAMED_FILES
from tests.store.postgresql_server import PostgresqlServer
from tests.store.served import Served

IN_FLIGHT = 64
RATE = 1000.0
_PREPARED = 4000
"""Requests a second of flat-out sending that are made before: more than two cores answer."""

_SECRET = NAMED_FILES["secret"].strip().encode()
CANDIDATES = {"SQLite": 0, "PostgreSQL, 1 replica": 1, "PostgreSQL, 2 replicas": 2}


@dataclass(frozen=True, slots=True)
class Found:
    """What one candidate came to. `cpu` is microseconds a delivery, by process."""

    rate: float
    p99: float
    refused: int
    cpu: dict[str, float]


def flat_out(streams: Sequence[Stream]) -> tuple[Counter[str], float]:
    """Send for as long as a stream says, over `IN_FLIGHT` connections. Return the statuses and the seconds."""
    gc.disable()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_flat_out(streams))


async def _flat_out(streams: Sequence[Stream]) -> tuple[Counter[str], float]:
    statuses: Counter[str] = Counter()
    each = IN_FLIGHT // len(streams)
    count = int(_PREPARED * streams[0].seconds) // len(streams)
    sources = [iter([make_request(one, "/webhook", n) for n in range(count)]) for one in streams]
    began = time.perf_counter()

    async def caller(port: int, requests: Iterator[bytes], stop: float) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for request in requests:
            if time.perf_counter() > stop:
                break
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            length = head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]
            await reader.readexactly(int(length))
            statuses[head[9:12].decode()] += 1
        writer.close()

    await asyncio.gather(
        *(
            caller(urlsplit(stream.url).port or 0, requests, began + stream.seconds)
            for stream, requests in zip(streams, sources, strict=True)
            for _ in range(each)
        )
    )
    return statuses, time.perf_counter() - began


class Candidate:
    """The processes of one candidate, with a new store."""

    def __init__(self, folder: Path, server: PostgresqlServer, replicas: int) -> None:
        """`replicas` on a database of `server`; 0 for one controller on SQLite."""
        url = server.database() if replicas else ""
        self._replicas = [
            Served(folder / str(number), folder / "state.db") for number in range(max(1, replicas))
        ]
        for replica in self._replicas if url else ():
            file = replica.folder / "fleet.yaml"
            file.write_text(file.read_text().replace(f"sqlite:///{replica.store}", url))
        self._server = server.pid if url else None
        self._processes: list[asyncio.subprocess.Process] = []

    async def measure(self, seconds: float, other: ProcessPoolExecutor) -> Found:
        """Start, send, and stop."""
        try:
            for replica in self._replicas:
                self._processes.append(await replica.start())
                if replica is self._replicas[0]:
                    await replica.until_logged('"event": "serving"')
            return await self._measure(seconds, other)
        finally:
            for process in self._processes:
                process.kill()
                await process.wait()

    async def _measure(self, seconds: float, other: ProcessPoolExecutor) -> Found:
        loop = asyncio.get_running_loop()
        statuses, took = await loop.run_in_executor(other, flat_out, self._streams(1, seconds))
        before, streams = self._cpu(), self._streams(100, seconds)
        answers = await asyncio.gather(
            *(loop.run_in_executor(other, send, stream) for stream in streams)
        )
        count = sum(len(one.waits_ms) for one in answers)
        cpu = {
            name: (after - before[name]) / count * 1e6 for name, after in self._cpu().items()
        } | {"sender": sum(one.cpu_us for one in answers) / len(answers)}
        waits = sorted(wait for one in answers for wait in one.waits_ms)
        accepted = statuses.pop("202", 0)
        refused = sum(statuses.values()) + sum(
            len(one.waits_ms) - one.statuses[202] for one in answers
        )
        return Found(accepted / took, waits[int(len(waits) * 0.99)], refused, cpu)

    def _streams(self, first: int, seconds: float) -> list[Stream]:
        """Return a stream for each replica, of jobs of its own."""
        return [
            Stream(
                f"http://127.0.0.1:{replica.port}/webhook",
                _SECRET,
                "acme/widgets",
                "gpu",
                RATE / len(self._replicas),
                seconds,
                first_job=(first + number) * 10**9,
            )
            for number, replica in enumerate(self._replicas)
        ]

    def _cpu(self) -> dict[str, float]:
        """Return the CPU seconds so far of each process."""
        found = {
            f"replica {number}": _seconds(psutil.Process(process.pid))
            for number, process in enumerate(self._processes, 1)
        }
        if self._server is not None:
            server = psutil.Process(self._server)
            found["server"] = sum(map(_seconds, [server, *server.children(recursive=True)]))
        return found


def _seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


async def main(seconds: float, rounds: int, folder: Path) -> int:
    """Measure all candidates, and print the medians of the rounds. Return the exit status."""
    found: dict[str, list[Found]] = {name: [] for name in CANDIDATES}
    server = PostgresqlServer(durable=True, folder=folder)
    context = multiprocessing.get_context("spawn")
    try:
        with ProcessPoolExecutor(2, mp_context=context) as other:
            for number in range(rounds):
                for name in list(CANDIDATES)[:: -1 if number % 2 else 1]:
                    place = folder / f"{number}-{CANDIDATES[name]}"
                    candidate = Candidate(place, server, CANDIDATES[name])
                    found[name].append(await candidate.measure(seconds, other))
                    print(number + 1, name, found[name][-1], flush=True)
    finally:
        server.close()
    print(f"{'':<24}{f'{IN_FLIGHT} in flight':>14}{f'p99 at {RATE:.0f}/s':>16}  CPU of a delivery")
    for name, measured in found.items():
        cpu = {of: median(one.cpu[of] for one in measured) for of in measured[0].cpu}
        words = ", ".join(f"{of} {used:.0f} us" for of, used in cpu.items())
        rate, p99 = median(one.rate for one in measured), median(one.p99 for one in measured)
        print(f"{name:<24}{rate:>12.0f}/s{p99:>13.1f} ms  {words}")
    refused = sum(one.refused for measured in found.values() for one in measured)
    print(f"{refused} deliveries were not accepted")
    return int(refused > 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="on the disk to be measured (default: TMPDIR)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as made:
        Path(made).chmod(0o711)  # The server of root runs as another user.
        sys.exit(asyncio.run(main(options.seconds, options.rounds, Path(made))))
