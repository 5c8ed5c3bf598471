"""The composed controller: every part is there, and the failure of any task ends the loop with its error."""

import ast
import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from autoscaler.controller.composition import Controller, Ports
from autoscaler.controller.provider_opener import LISTED_TOGETHER
from autoscaler.ledger.ledger import KEPT_FOR
from autoscaler.model.identifiers import Seconds
from tests.controller.controllers import PACE, World
from tests.controller.virtual_time import VirtualClock, on_virtual_time


class BrokenClock(VirtualClock):
    """Fails in the task that opens the providers."""

    async def sleep(self, seconds: Seconds) -> None:
        if seconds == LISTED_TOGETHER:
            raise ZeroDivisionError
        await super().sleep(seconds)


async def resumed(world: World, ports: Ports) -> Controller:
    """Return a controller on these ports, before its first turn."""
    saved = await world.store.load(world.clock.now() - KEPT_FOR)
    world.crash_point(None)
    controller = Controller(ports, world.settings(PACE), saved.installations)
    await controller.resume(saved)
    return controller


@on_virtual_time
async def test_an_error_of_the_provider_opener_ends_the_loop() -> None:
    world = World()
    controller = await resumed(world, replace(world.ports(), clock=BrokenClock()))
    with pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(controller.reconciler.run(), 60.0)


CENTRAL = {"Journal", "Intake", "Executor", "Poller", "Reconciler", "BootstrapService", "Effects"}
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
