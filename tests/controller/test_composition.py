"""The composed controller: every part is there, and the failure of any task ends the loop with its error."""

import ast
import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from autoscaler.controller.composition import Controller, Ports
from autoscaler.controller.machines.opening import LISTED_TOGETHER
from autoscaler.controller.ports.store import StoreError
from autoscaler.ledger.ledger import KEPT_FOR
from autoscaler.model.catalogue import OperatingSystem
from autoscaler.model.identifiers import JobId, Seconds
from autoscaler.model.jobs.job import QUEUED_AT_MOST, JobState
from tests.controller.controllers import PACE, World, cancelled
from tests.controller.fakes_lists import FakeLists
from tests.controller.test_pricing import G5_SPOT, FakeReader
from tests.controller.virtual_time import VirtualClock, on_virtual_time
from tests.planner.fleets import EAST


class BrokenClock(VirtualClock):
    """Fails in the task that opens the providers."""

    async def sleep(self, seconds: Seconds) -> None:
        if seconds == LISTED_TOGETHER:
            raise ZeroDivisionError
        await super().sleep(seconds)


async def resumed(world: World, ports: Ports) -> Controller:
    """Return a controller on these ports, before its first turn."""
    saved = await world.store.load(world.clock.now() - KEPT_FOR)
    controller = Controller(ports, world.settings(PACE), saved.installations)
    await controller.resume(saved)
    return controller


@on_virtual_time
async def test_an_error_of_the_provider_opener_ends_the_loop() -> None:
    world = World()
    controller = await resumed(world, replace(world.ports(), clock=BrokenClock()))
    with pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(controller.reconciler.run(), 60.0)


@pytest.mark.parametrize(
    ("error", "logged"),
    [(ZeroDivisionError(), ["background_task_failed"]), (StoreError("took over"), [])],
)
@on_virtual_time
async def test_a_failed_effect_ends_the_loop_and_is_logged_unless_the_store_failed(
    error: Exception, logged: list[str]
) -> None:
    """A takeover ends every effect of the earlier leader. That is no bug, and the process logs it once."""
    world = World()
    controller = await resumed(world, world.ports())

    async def fail() -> None:
        raise error

    with capture_logs() as logs:
        controller.effects.start(fail())
        await asyncio.sleep(0.1)
    assert [one["event"] for one in logs] == logged
    assert controller.crashes == [error]
    assert controller.reconciler.stopping


@pytest.mark.parametrize(
    ("before", "absence"), [(400.0, 400.0), (0.4, 0.4), (-30.0, 0.0), (None, 0.0)]
)
@on_virtual_time
async def test_the_downtime_is_the_time_since_the_last_heartbeat(
    before: float | None, absence: float
) -> None:
    """A host's clock may be set back, and the first start has no heartbeat."""
    world = World()
    if before is not None:
        world.store.heartbeat = world.clock.now() - before
    controller = await resumed(world, world.ports())
    assert controller.journal.ledger.state.was_away == pytest.approx(absence)


@on_virtual_time
async def test_new_spot_prices_are_used_for_costs() -> None:
    world = World()
    world.providers[EAST].prices = FakeReader(world.clock)
    controller = await resumed(world, world.ports())
    reading = asyncio.create_task(controller.price_refresh.run())
    await asyncio.sleep(5.0)
    assert not reading.done()
    await cancelled(reading)
    costs = controller.journal.ledger.state.spot_costs
    assert costs._prices == {
        (EAST, "g5.xlarge", "a", OperatingSystem.LINUX): G5_SPOT.dollars_per_hour
    }


@on_virtual_time
async def test_a_job_that_is_in_the_store_only_is_not_queued_again_by_a_list() -> None:
    world = World()
    world.lists = FakeLists(world.clock.now, since=world.clock.now())
    controller = await resumed(world, world.ports())
    world.lists.queue("acme/widgets", 7, 1, controller.journal.now)
    synchronizing = asyncio.create_task(controller.synchronize_github())
    jobs = controller.journal.ledger.state.jobs
    await asyncio.sleep(30.0)
    assert jobs[JobId(1)].state is JobState.QUEUED
    await cancelled(synchronizing)
    for waited in (QUEUED_AT_MOST, KEPT_FOR):
        await asyncio.sleep(waited)
        await controller.reconciler.turn()
    assert JobId(1) not in jobs
    synchronizing = asyncio.create_task(controller.synchronize_github())
    await asyncio.sleep(60.0)
    assert not synchronizing.done()
    await cancelled(synchronizing)
    assert jobs[JobId(1)].state is JobState.COMPLETED


CENTRAL = {
    "Journal",
    "Intake",
    "Executor",
    "MachineLists",
    "Reconciler",
    "BootstrapService",
    "Effects",
}
ROOT = Path(__file__).parents[2]


def test_only_composition_creates_the_parts_of_a_controller() -> None:
    """A second composition could forget a part."""
    found = {}
    for folder in (
        "autoscaler",
        "benchmarks",
        "lab",
        "tests/chaos",
        "tests/controller",
        "tests/app",
    ):
        for path in sorted((ROOT / folder).rglob("*.py")):
            text = path.read_text()
            if not any(part in text for part in CENTRAL):
                continue
            calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
            names = {call.func.id for call in calls if isinstance(call.func, ast.Name)}
            if parts := names & CENTRAL:
                found[str(path.relative_to(ROOT))] = parts
    assert found == {"autoscaler/controller/composition.py": CENTRAL}
