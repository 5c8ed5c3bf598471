"""The controller is killed again and again while jobs flow: nothing twice, nothing lost, nothing left."""

import asyncio
import random

from autoscaler.lab.laboratory import LabFleet, Laboratory
from tests.lab.system.harness import (
    at_rest,
    ec2_sku,
    job,
    unsettled,
    wrong_runners,
    wrong_slots,
)

KILLS = 20
SKUS = {
    "linux.g5": ec2_sku("g5.xlarge"),
    "linux.g6": ec2_sku("g6.xlarge"),
    "linux.arm": ec2_sku("m7g.xlarge", arch="arm64"),
}


async def _keep_killing(lab: Laboratory, chance: random.Random) -> None:
    """Some lives end while they start, most soon after the first turn of the loop."""
    for life in range(KILLS):
        await lab.controller.start()
        if life % 5 != 4:
            await lab.controller.ready()
            await asyncio.sleep(chance.uniform(0.0, 1.2))
        else:
            await asyncio.sleep(chance.uniform(0.8, 1.8))
        await lab.controller.kill()


async def _keep_pushing(lab: Laboratory, chance: random.Random, killing: asyncio.Task[None]) -> None:
    pushed = 0
    while not killing.done():
        batch = [
            job(f"j{pushed + n}", chance.choice(list(SKUS)), chance.uniform(20.0, 90.0))
            for n in range(chance.randint(1, 3))
        ]
        lab.github.push(batch)
        pushed += len(batch)
        await asyncio.wait({killing}, timeout=chance.uniform(0.5, 1.5))


async def test_twenty_kills_while_jobs_flow() -> None:
    chance = random.Random(3)
    fleet = LabFleet("acme", ("widgets",), SKUS, scale=20.0, most_machines=100)
    async with Laboratory(fleet) as lab:
        lab.github.point_webhook(f"{lab.controller.url}/webhook")
        killing = asyncio.create_task(_keep_killing(lab, chance))
        await _keep_pushing(lab, chance, killing)
        await killing
        await lab.start_controller()
        await at_rest(lab, 30.0)
        assert await lab.controller.terminate() == 0
        assert lab.wrong_jobs() == []
        assert wrong_slots(lab) == []
        assert wrong_runners(lab) == []
        assert unsettled(lab) == []
        assert lab.github.deliveries["redelivered"] > 0
