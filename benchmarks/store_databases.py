"""Compares SQLite and PostgreSQL in one run: deliveries that are stored a second, and a start with many rows.

Run: `python benchmarks/store_databases.py [--seconds 10] [--rounds 3] [--rows 100000] [--folder DIR]`. The
server is on this host, and its COMMIT waits for the disk, as SQLite's does. Each round measures both, one after
the other.
"""

import argparse
import asyncio
import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from autoscaler.controller.ports.store import HistoryRow, Store
from autoscaler.store.opening import open_store
from benchmarks.store_accept import IN_FLIGHT, at_a_rate, flat_out, make_body
from tests.store.postgresql_server import PostgresqlServer
from tests.store.records import job

_RATE = 1000
_BATCH = 1000


async def accept(url: str, bodies: list[bytes], seconds: float) -> tuple[float, float]:
    """Return the deliveries that a new store takes a second, and the p99 in ms at `_RATE` a second."""
    store = await open_store(url)
    try:
        await flat_out(store, bodies, 1.0, 0)  # the first second warms up
        most = await flat_out(store, bodies, seconds, 10**6)
        waits = sorted(await at_a_rate(store, bodies, _RATE, int(_RATE * seconds), 10**7))
    finally:
        await store.close()
    return most, waits[int(len(waits) * 0.99)] * 1000


async def start(url: str, rows: int) -> float:
    """Return the seconds in which a store with so many jobs, each with a row of history, opens and loads."""
    store = await open_store(url)
    for first in range(0, rows, _BATCH):
        await _fill(store, range(first, first + _BATCH))
    await store.close()
    began = time.perf_counter()
    store = await open_store(url)
    found = await store.load(0.0)
    took = time.perf_counter() - began
    await store.close()
    assert len(found.jobs) == rows
    return took


async def _fill(store: Store, numbers: Sequence[int]) -> None:
    history = [HistoryRow(1.0, "job", str(number), "queued", "read") for number in numbers]
    await store.commit([job(number) for number in numbers], history)


async def main(seconds: float, rounds: int, rows: int, folder: Path) -> None:
    """Measure both, and print the median of the rounds."""
    dice = random.Random(7)
    bodies = [make_body(dice, number) for number in range(64)]
    found: dict[str, list[tuple[float, float, float]]] = {"SQLite": [], "PostgreSQL": []}
    server = PostgresqlServer(durable=True, folder=folder)
    try:
        for number in range(rounds):
            for name, of_name in found.items():
                sqlite = name == "SQLite"
                urls = [
                    f"sqlite:///{folder}/{kind}-{number}.db" if sqlite else server.database()
                    for kind in ("accept", "start")
                ]
                of_name.append(
                    (*await accept(urls[0], bodies, seconds), await start(urls[1], rows))
                )
    finally:
        server.close()
    print(
        f"{'':<12}{f'{IN_FLIGHT} in flight':>14}{f'p99 at {_RATE}/s':>18}{f'start, {rows} jobs':>22}"
    )
    for name, measured in found.items():
        most, p99, took = (median(column) for column in zip(*measured, strict=True))
        print(f"{name:<12}{most:>12.0f}/s{p99:>15.1f} ms{took:>20.1f} s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--folder", type=Path, help="on the disk to be measured (default: TMPDIR)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as made:
        Path(made).chmod(0o711)  # The server of root runs as another user.
        asyncio.run(main(options.seconds, options.rounds, options.rows, Path(made)))
