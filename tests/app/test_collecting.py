"""Long-lived objects are frozen for the garbage collector, which is safe if no dropped one is in a cycle."""

import asyncio
import gc
import weakref

from autoscaler.app.event_loop import (
    COLLECT_EVERY,
    FREEZE_EVERY,
    keep_out_of_collections,
    without_collections,
)
from autoscaler.model.catalogue import RegistrationRate
from benchmarks.virtual_fleet import LABEL, REPOSITORIES, Setting, VirtualFleet
from tests.controller.virtual_time import on_virtual_time

TURNS = RegistrationRate(50, 5.0)


@on_virtual_time
async def test_full_garbage_collections_scan_only_new_objects() -> None:
    freezing = asyncio.get_running_loop().create_task(keep_out_of_collections())
    await asyncio.sleep(1.0)
    frozen = gc.get_freeze_count()
    kept = [[number] for number in range(2000)]
    await asyncio.sleep(FREEZE_EVERY)
    with_kept = gc.get_freeze_count() - frozen
    del kept
    freed = frozen + with_kept - gc.get_freeze_count()
    freezing.cancel()
    await asyncio.wait({freezing})
    assert frozen > 10_000
    assert with_kept >= 1000
    assert freed >= 1000, "reference counting frees what is frozen"
    assert gc.get_freeze_count() == 0


class Knot:
    def __init__(self) -> None:
        self.myself = self


@on_virtual_time
async def test_new_objects_cause_no_full_collection_and_young_cycles_are_freed() -> None:
    full: list[float] = []

    def on_collection(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"] == 2:
            full.append(asyncio.get_running_loop().time())

    before = gc.get_threshold()
    freezing = asyncio.get_running_loop().create_task(keep_out_of_collections())
    await asyncio.sleep(1.0)
    gc.callbacks.append(on_collection)
    try:
        known = weakref.ref(Knot())
        kept = [[number] for number in range(300_000)]
        assert (full, known(), len(kept)) == ([], None, 300_000)
    finally:
        gc.callbacks.remove(on_collection)
        freezing.cancel()
        await asyncio.wait({freezing})
    assert gc.get_threshold() == before


@on_virtual_time
async def test_a_frozen_cycle_is_freed_within_the_hour() -> None:
    freezing = asyncio.get_running_loop().create_task(keep_out_of_collections())
    await asyncio.sleep(1.0)
    knot = Knot()
    known = weakref.ref(knot)
    await asyncio.sleep(FREEZE_EVERY)
    del knot
    gc.collect()
    frozen = known() is not None
    await asyncio.sleep(COLLECT_EVERY)
    freezing.cancel()
    await asyncio.wait({freezing})
    assert frozen
    assert known() is None


@on_virtual_time
async def test_jobs_and_machines_leave_no_cycles() -> None:
    """A frozen object that is in a cycle when it is dropped would never be freed."""
    fleet = VirtualFleet(
        Setting(15_000, REPOSITORIES, 0.1, False, machines_boot=True, registrations=TURNS)
    )
    try:
        async with fleet.at_work():
            for count in (5, 20):
                gc.collect()
                gc.disable()
                for number in range(count):
                    run_id = 100 * count + number // 4
                    fleet.actions.queue(REPOSITORIES[number % 4], run_id, LABEL, works=60.0)
                await asyncio.sleep(1500.0)
            assert not fleet.machines, "all jobs have run"
            assert gc.collect() == 0
    finally:
        gc.enable()


def test_no_garbage_is_collected_while_records_are_loaded() -> None:
    collections: list[str] = []
    gc.callbacks.append(lambda phase, _: collections.append(phase))
    try:
        with without_collections():
            kept = [[number] for number in range(10_000)]
            meanwhile = list(collections)
        assert (meanwhile, len(kept), gc.isenabled()) == ([], 10_000, True)
    finally:
        gc.callbacks.pop()
