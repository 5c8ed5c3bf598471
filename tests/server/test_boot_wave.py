"""A thousand machines attest at once, together with foreign instances, to the real bootstrap service."""

import asyncio
import base64
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from autoscaler.model.identifiers import LaunchRequestId, ProviderMachineId, SkuName
from autoscaler.server.machines.bootstrap import BootstrapEndpoint
from tests.controller.agents import launched
from tests.controller.controllers import World, cancelled
from tests.controller.fakes_provider import Instance, proof_of
from tests.controller.virtual_time import on_virtual_time
from tests.planner.fleets import EAST, catalogue, sku
from tests.server.doubles import CountingTelemetry

WAVE, STRANGERS = 1_000, 80


async def attest(endpoint: BootstrapEndpoint, instance: Instance) -> int:
    attest = {
        "provider": EAST,
        "proof": base64.b64encode(proof_of(instance)).decode(),
        "nonce": "0f" * 32,
        "protocol": 1,
        "agent": "1.0",
    }

    @asynccontextmanager
    async def read() -> AsyncIterator[bytes]:
        yield json.dumps(attest).encode()

    return (await endpoint.receive_attestation(read)).status


@pytest.mark.case(
    "a thousand machines boot at once while other instances of the account send requests without "
    "end",
    topic="Hostile input",
    source="EC2: instance identity documents",
)
@on_virtual_time
async def test_a_boot_wave_is_answered_although_foreign_instances_attest_endlessly() -> None:
    """The foreign instances wait for a listing each time; no machine of this fleet is refused."""
    world = World(catalogue=catalogue(sku(max_machines=WAVE)))
    controller, agents = await launched(world, jobs=WAVE)
    endpoint = BootstrapEndpoint(controller.bootstrap, b"", CountingTelemetry())
    received: Counter[int] = Counter()

    async def ask(number: int) -> None:
        stranger = Instance(
            ProviderMachineId(f"i-stranger-{number}"),
            LaunchRequestId("c"),
            SkuName("gpu"),
            "o",
            "t1",
        )
        while True:
            received[await attest(endpoint, stranger)] += 1
            await asyncio.sleep(0.01)

    for machine in controller.state.machines.values():
        machine.placement.launch_time = ""  # each needs the next listing
    asking = [asyncio.create_task(ask(number)) for number in range(STRANGERS)]
    await asyncio.sleep(1.0)
    watching = asyncio.create_task(controller.run_tasks())
    answers = Counter(await asyncio.gather(*(attest(endpoint, agent.instance) for agent in agents)))
    assert answers == {200: WAVE}
    assert set(received) == {503}
    assert received[503] >= STRANGERS
    for task in (watching, *asking):
        await cancelled(task)
