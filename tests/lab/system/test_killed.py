"""The controller is killed again and again while jobs flow: nothing twice, nothing lost, nothing left."""

import asyncio
import random

from autoscaler.lab.laboratory import LabFleet, Laboratory
from autoscaler.model.identifiers import Seconds
from tests.lab.system.harness import (
    at_rest,
    ec2_sku,
    job,
    unsettled,
    wrong_runners,
    wrong_slots,
)

KILLS = 20
SEED = 5
SKUS = {
    "linux.g5": ec2_sku("g5.xlarge"),
    "linux.g6": ec2_sku("g6.xlarge"),
    "linux.arm": ec2_sku("m7g.xlarge", arch="arm64"),
}
STARTING: Seconds = 1.5
WORKING: Seconds = 0.6
"""Real seconds: within the one it opens its store and provider, within the other it launches,
mints and hands over what came while it was away."""


async def _keep_killing(lab: Laboratory, chance: random.Random) -> None:
    """Every fourth life ends while it starts, the others soon after."""
    for life in range(KILLS):
        await lab.controller.start()
        if life % 4 == 3:
            await asyncio.sleep(chance.uniform(0.5, STARTING))
        else:
            await lab.controller.ready()
            await asyncio.sleep(chance.uniform(0.0, WORKING))
        await lab.controller.kill()


async def _keep_pushing(
    lab: Laboratory, chance: random.Random, killing: asyncio.Task[None]
) -> None:
    while not killing.done():
        first = len(lab.github.jobs)
        lab.github.push(
            [
                job(f"j{first + n}", chance.choice(sorted(SKUS)), chance.uniform(20.0, 90.0))
                for n in range(chance.randint(1, 3))
            ]
        )
        await asyncio.wait({killing}, timeout=chance.uniform(1.0, 2.0))


async def test_twenty_kills_while_jobs_flow() -> None:
    fleet = LabFleet("acme", ("widgets",), SKUS, scale=30.0)
    async with Laboratory(fleet) as lab:
        lab.github.point_webhook(f"{lab.controller.url}/webhook")
        killing = asyncio.create_task(_keep_killing(lab, random.Random(SEED)))
        await _keep_pushing(lab, random.Random(SEED + 1), killing)
        await killing
        await lab.start_controller()
        await at_rest(lab, 40.0)
        assert await lab.controller.terminate() == 0
        assert lab.wrong_jobs() == []
        assert wrong_slots(lab) == []
        assert wrong_runners(lab) == []
        assert unsettled(lab) == []
        # That it was a trial at all: deliveries failed, and the kills fell among the work.
        assert lab.github.deliveries["redelivered"] > KILLS
        assert len(lab.github.jobs) > KILLS
