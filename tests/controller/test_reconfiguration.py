"""The catalogue of a changed configuration, while other tasks of the controller go on."""

import asyncio

from autoscaler.controller.reconfiguration import Reconfiguration
from autoscaler.model.identifiers import ProviderName
from tests.controller.controllers import Controller, World
from tests.controller.virtual_time import on_virtual_time
from tests.planner.fleets import EAST

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
