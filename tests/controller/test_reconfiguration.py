"""The catalogue of a changed configuration, while other tasks of the controller go on."""

import asyncio

import pytest

from autoscaler.controller.operators.reconfiguration import Reconfiguration
from autoscaler.model.identifiers import ProviderName
from autoscaler.model.machines.machine import MachineState
from tests.controller.agents import queue
from tests.controller.controllers import Controller, World
from tests.controller.virtual_time import on_virtual_time
from tests.planner.fleets import EAST, catalogue, sku

WEST = ProviderName("west")


@on_virtual_time
async def test_a_provider_that_opens_during_a_reload_stays_open() -> None:
    """Otherwise nothing would be launched there until the providers are read again, once a day."""
    opened, used = {EAST}, list[set[ProviderName]]()

    async def read_again(_: ProviderName) -> None:
        await asyncio.sleep(10.0)

    reconfiguration = Reconfiguration(
        Controller(World()).journal, lambda: opened, read_again, lambda names: used.append({*names})
    )
    reading = asyncio.ensure_future(reconfiguration.read_providers_again())
    await asyncio.sleep(5.0)
    opened.add(WEST)
    await reading
    assert used == [{EAST, WEST}]


@pytest.mark.parametrize(("renamed", "launched", "without_sku"), [("gpu", 1, 0), ("other", 0, 1)])
@pytest.mark.asyncio
async def test_a_preview_plans_for_the_queued_jobs_and_changes_nothing(
    renamed: str, launched: int, without_sku: int
) -> None:
    controller = Controller(World())
    await controller.resume()
    await queue(controller, 1)
    await controller.intake.apply_waiting()
    used = controller.state.catalogue
    found = await controller.parts.reconfiguration.preview(catalogue(sku(renamed)))
    assert [one.count for one in found.launches] == [1] * launched
    assert found.without_sku == without_sku
    assert controller.state.catalogue is used
    assert not controller.state.machines


@on_virtual_time
async def test_a_machine_counts_from_its_launch_request_on() -> None:
    """A change that loses machines must not be used between the request and the provider's answer."""
    world = World()
    controller = Controller(world)
    await controller.resume()
    count = controller.parts.reconfiguration.machines_at
    assert (count(EAST), count(None)) == (0, 0)
    await queue(controller, 1)
    await controller.turn(then=0.0)
    (machine,) = controller.state.machines.values()
    assert machine.state is MachineState.REQUESTED
    assert (count(EAST), count(WEST), count(None)) == (1, 0, 1)
