"""A process that accepts and applies deliveries until it is killed, and prints what is durable.

`a ID` after an accept returned, `c ID` after the commit that applied it and wrote its job.
"""

import asyncio
import itertools
import os
import sys
from pathlib import Path

from autoscaler.controller.ports.store import Delivery, HistoryRow
from autoscaler.store.sqlite.store import SqliteStore
from tests.store.records import job, runner

WORKERS = 16


async def work(store: SqliteStore, numbers: "itertools.count[int]") -> None:
    while True:
        number = next(numbers)
        delivery = Delivery(str(number), "workflow_job", float(number), b"%06d" % number * 500)
        await store.accept(delivery)
        say(f"a {number}\n")
        await store.commit(
            [job(number), runner(f"r{number}")],
            [HistoryRow(1.0, "job", str(number), "queued")],
            applied=[delivery.key],
        )
        say(f"c {number}\n")


def say(line: str) -> None:
    os.write(1, line.encode())  # at once: nothing may be left in a buffer of this process


async def main(path: Path) -> None:
    store = await SqliteStore.open(path)
    numbers = itertools.count()
    await asyncio.gather(*(work(store, numbers) for _ in range(WORKERS)))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
