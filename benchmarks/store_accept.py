"""Measures how long a webhook delivery takes to become durable, at a steady rate and at full speed.

Run: `python benchmarks/store_accept.py [--rate 500] [--seconds 10] [--folder DIR]`. At the steady rate,
deliveries do not wait for each other. The time counts from when a delivery was due.
"""

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from pathlib import Path

from autoscaler.controller.ports.store import Delivery, Store
from autoscaler.store.sqlite.store import SqliteStore

BODY_BYTES = 12_000
IN_FLIGHT = 64


def make_body(dice: random.Random, number: int) -> bytes:
    """Return a body with the size of a workflow_job event, as compressible as one (to about a quarter)."""
    fields = {f"field_{n}": dice.randbytes(12).hex() for n in range(120)}
    text = json.dumps({"id": f"{number:012}", **fields})
    filler = "https://api.github.com/repos/acme/widgets/actions/jobs/ " * 200
    return (text + filler)[:BODY_BYTES].encode()


def delivery(bodies: list[bytes], number: int) -> Delivery:
    """Return the delivery with this number. Its body is new: the store knows a delivery by its body."""
    body = bodies[number % len(bodies)]
    body = b'{"id": "%012d"' % number + body[len('{"id": "000000000000"') :]
    return Delivery(f"d-{number}", "workflow_job", time.time(), body)


async def at_a_rate(
    store: Store, bodies: list[bytes], rate: float, count: int, first: int = 0
) -> list[float]:
    """Return the seconds from when each delivery was due to its answer. `first` is the number of the first."""
    waits: list[float] = []

    async def one(number: int, due: float) -> None:
        assert await store.accept(delivery(bodies, first + number))
        waits.append(time.perf_counter() - due)

    # Tasks are made as they fall due: to make them all first takes half a second, by which every
    # arrival of that time is late.
    async with asyncio.TaskGroup() as group:
        start = time.perf_counter()
        for number in range(count):
            due = start + number / rate
            await asyncio.sleep(due - time.perf_counter())
            group.create_task(one(number, due))
    return waits


async def flat_out(store: Store, bodies: list[bytes], seconds: float, first: int) -> float:
    """Return the deliveries a second with `IN_FLIGHT` callers that never pause."""
    end = time.perf_counter() + seconds
    done = 0

    async def caller() -> None:
        nonlocal done
        while time.perf_counter() < end:
            done += 1
            assert await store.accept(delivery(bodies, first + done))

    await asyncio.gather(*(caller() for _ in range(IN_FLIGHT)))
    return done / seconds


async def main(rate: float, seconds: float, folder: Path) -> None:
    """Measure both, and print them."""
    dice = random.Random(7)
    bodies = [make_body(dice, number) for number in range(64)]
    store = await SqliteStore.open(folder / "bench.db")
    try:
        await at_a_rate(store, bodies, rate, int(rate))  # the first second warms up
        await store.commit([], [], [delivery(bodies, number).key for number in range(int(rate))])
        await store.prune(time.time() + 1)
        waits = sorted(await at_a_rate(store, bodies, rate, int(rate * seconds), int(rate)))
        most = await flat_out(store, bodies, seconds, int(rate * (seconds + 1)))
    finally:
        await store.close()
    marks = {name: waits[int(len(waits) * part)] for name, part in (("p50", 0.5), ("p99", 0.99))}
    marks["max"] = waits[-1]
    shown = ", ".join(f"{name} {value * 1000:.1f} ms" for name, value in marks.items())
    size = (folder / "bench.db").stat().st_size
    sys.stdout.write(
        f"{rate:g}/s for {seconds:g} s: {shown}\n"
        f"{IN_FLIGHT} in flight: {most:.0f}/s\n"
        f"file: {size / 1e6:.1f} MB\n"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=500.0)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--folder", type=Path, help="on the disk to be measured (default: TMPDIR)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as made:
        asyncio.run(main(options.rate, options.seconds, Path(made)))
