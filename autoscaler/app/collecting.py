"""Keeps Python's garbage collector from looking through the whole fleet, which holds the event loop.

A full collection looks at every object that can be part of a cycle: 88 ms with 3,500 machines and 10,000
jobs. The controller's records, and connections of uvloop, are in no cycle when they are dropped, so that
reference counting frees them, frozen or not (`gc.freeze`, Python's documentation of `gc`).
"""

import asyncio
import gc

from autoscaler.model.identifiers import Seconds

FREEZE_EVERY: Seconds = 60.0
"""Full collections look at what came since, and take as long as that needs."""


async def keep_out_of_collections() -> None:
    """Freeze all objects there are, now and every minute, until cancelled. Freezing itself is O(1)."""
    try:
        while True:
            gc.freeze()
            await asyncio.sleep(FREEZE_EVERY)
    finally:
        gc.unfreeze()
