"""The controller is killed at each named point, and at any other, again and again, while jobs flow.

Nothing is done twice, nothing is lost, nothing is left.
"""

import asyncio
import random
import signal
from collections import Counter
from pathlib import Path

import pytest

from autoscaler.model.identifiers import Seconds
from lab.ec2.moto import MotoProcess
from lab.laboratory import LabFleet, Laboratory
from tests.lab.system.harness import (
    at_rest,
    copied_store,
    ec2_sku,
    job,
    records_in,
    unsettled,
    until,
    wrong_runners,
    wrong_slots,
)
from tests.lab.system.kill_points import POINTS, AcknowledgementKiller, Place, Trial, recorded_late
from tests.lab.system.pace import PATIENCE, yielding

ROUNDS = 5
SEED = 5
SKUS = {
    "linux.g5": ec2_sku("g5.xlarge"),
    "linux.g6": ec2_sku("g6.xlarge"),
    "linux.arm": ec2_sku("m7g.xlarge", arch="arm64"),
}
AT_ONCE = 8
"""The number of jobs that are always active, so that every kill point is reached."""
ANY_MOMENT: Seconds = 2.5
"""Real seconds: a controller opens its store and provider, and launches, registers and assigns for
the jobs that arrived while it was down."""
MORTAL = (str(Path(__file__).with_name("mortal_controller.py")),)


async def _keep_pushing(lab: Laboratory, chance: random.Random) -> None:
    while True:
        if lab.github.unfinished < AT_ONCE:
            name = f"j{len(lab.github.jobs)}"
            lab.github.push([job(name, chance.choice(sorted(SKUS)), chance.uniform(20.0, 60.0))])
        await asyncio.sleep(0.05)


async def _dies(trial: Trial, place: Place) -> None:
    """Prepare a kill, wait until the controller reaches it, and check what it left."""
    check = place(trial)
    controller = trial.lab.controller
    await until(lambda: not controller.running, PATIENCE, controller.log_end)
    assert await controller.ended() == -signal.SIGKILL, controller.log_end()
    with copied_store(trial.lab) as store:
        check(store)
        assert recorded_late(trial.lab, records_in(store)) == []


async def _answer_swallowed(trial: Trial) -> None:
    swallowed = len(trial.swallowed)
    trial.swallow()
    await until(lambda: len(trial.swallowed) > swallowed, PATIENCE, trial.lab.controller.log_end)


async def _keep_killing(trial: Trial, chance: random.Random) -> Counter[str]:
    """Kill the controller repeatedly. Return how often it was killed at each point."""
    kills: Counter[str] = Counter()
    controller = trial.lab.controller
    for number in range(ROUNDS):
        for point, places in POINTS.items():
            if point == "after the call":
                await _answer_swallowed(trial)
            await _dies(trial, places[number % len(places)])
            kills[point] += 1
            await controller.start()
        await asyncio.sleep(chance.uniform(0.2, ANY_MOMENT))
        await controller.kill()
        await controller.start()
    return kills


@pytest.mark.case(
    "the controller is killed at any point: nothing is launched twice, nothing leaks",
    topic="EC2's machines",
    source="EC2: idempotency",
)
async def test_the_controller_is_killed_at_every_point_while_jobs_run(
    tmp_path: Path, moto: MotoProcess
) -> None:
    killer, order = AcknowledgementKiller(), tmp_path / "order"
    fleet = LabFleet(
        "acme",
        ("widgets",),
        SKUS,
        scale=yielding(30.0),
        listener=killer,
        program=(*MORTAL, str(order)),
    )
    async with Laboratory(fleet, moto) as lab:
        trial = Trial(lab, killer, order)
        # From its first start on it knows which deliveries it missed.
        await lab.start_controller()
        pushing = asyncio.create_task(_keep_pushing(lab, random.Random(SEED)))
        kills = await _keep_killing(trial, random.Random(SEED + 1))
        pushing.cancel()
        await asyncio.wait({pushing})
        assert pushing.cancelled()
        await at_rest(lab, PATIENCE)
        assert await lab.controller.terminate() == 0
        assert lab.wrong_jobs() == []
        assert wrong_slots(lab) == []
        assert wrong_runners(lab) == []
        assert unsettled(lab) == []
        assert kills == dict.fromkeys(POINTS, ROUNDS)
        _repeated_as_they_were(trial)
        # No name was registered twice, whatever became of the first answer.
        assert set(lab.github.names_registered.values()) == {1}
        # The kills had an effect: deliveries failed, and jobs were active.
        assert lab.github.deliveries["redelivered"] > ROUNDS
        assert len(lab.github.jobs) > 2 * AT_ONCE


def _repeated_as_they_were(trial: Trial) -> None:
    """Check that every request was repeated unchanged, without newer images."""
    ec2 = trial.lab.ec2
    assert len(trial.swallowed) == ROUNDS
    assert all(len(ec2.sendings[token]) > 1 for token in trial.swallowed)
    assert {len(set(sent)) for sent in ec2.sendings.values()} == {1}
    assert ec2.errors["CreateFleet", "IdempotentParameterMismatch"] == 0
    launched = [one for one in ec2.instances if one.client_token in trial.images]
    assert len(launched) >= ROUNDS
    for one in launched:
        assert one.specification.image.id in trial.images[one.client_token]
