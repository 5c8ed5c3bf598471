"""The event loop: creates it, measures how late it runs, and keeps the garbage collector from blocking it.

While the loop is blocked, webhook deliveries, machines' requests and all other tasks wait.

A full collection looks at every object that can be part of a cycle: 88 ms with 3,500 machines and 10,000
jobs. It ignores frozen objects (`gc.freeze`, see Python's documentation of `gc`). Reference counting
frees them all the same, unless they are part of a cycle when they are dropped. The controller's records and
connections are not. Requests can leave small cycles behind, in aiohttp's answers for example, so
one full collection an hour scans everything.

Python itself begins a full collection when a quarter has been added to what the last one found. After a
freeze that is soon, and under 1,000 deliveries a second each such collection took 30 to 100 ms. So Python
collects only young objects, in which the cycles of requests are.
"""

import asyncio
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from autoscaler.controller.ports.telemetry import Telemetry
from autoscaler.model.identifiers import Seconds

FREEZE_EVERY: Seconds = 60.0
"""How often new objects are frozen, so that collections do not scan them again."""

COLLECT_EVERY: Seconds = 3600.0
"""How often frozen objects in cycles are freed. It blocks the event loop for as long as a full collection."""

YOUNG: Final = (2_000, 10)
"""Thresholds of `gc`: a collection after 2,000 new objects, and every tenth one of the older generation: 8 ms.

With Python's 700, each delivery's objects are scanned while it waits for the disk: 50 us per delivery.
"""

_NEVER: Final = 2**31 - 1

LAG_EVERY: Seconds = 0.01
"""How often a timer is set. A longer stall is measured as up to this much shorter than it was."""

LAG_WINDOW: Seconds = 60.0
"""The metric shows the longest lag of this window and of the one before: a scrape misses none."""


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return uvloop's event loop if it is installed, else asyncio's."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


async def report_lag(telemetry: Telemetry) -> None:
    """Report how late the running loop runs its timers, until cancelled.

    The metric is the longest lag of the last one to two windows.
    """
    loop = asyncio.get_running_loop()
    before = longest = 0.0
    ends = loop.time() + LAG_WINDOW
    while True:
        due = loop.time() + LAG_EVERY
        await asyncio.sleep(LAG_EVERY)
        now = loop.time()
        longer = now - due > longest
        longest = max(longest, now - due)
        ended = now >= ends
        if ended:
            before, longest, ends = longest, 0.0, now + LAG_WINDOW
        if longer or ended:
            telemetry.event_loop_lag(max(before, longest))


@contextmanager
def without_collections() -> Iterator[None]:
    """Collect no garbage while a controller loads its records, none of which is garbage.

    Python would scan all of them again and again while their number grows.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


async def keep_out_of_collections() -> None:
    """Exclude existing objects from garbage collections, now and every minute, until cancelled.

    Once an hour, scan all objects. `gc.freeze` itself is O(1).
    """
    before = gc.get_threshold()
    try:
        gc.set_threshold(*YOUNG, _NEVER)
        while True:
            gc.unfreeze()
            gc.collect()
            for _ in range(int(COLLECT_EVERY / FREEZE_EVERY)):
                gc.freeze()
                await asyncio.sleep(FREEZE_EVERY)
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
