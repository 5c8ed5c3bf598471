"""In the midst of faults, no waiting job gets an announcement whose moment has passed."""

import asyncio

import pytest

from autoscaler.controller.composition import Controller
from autoscaler.model.jobs.job import JobState
from autoscaler.simulator.world.controller.process import ProcessGoneError
from autoscaler.simulator.world.virtual_time import unowned
from autoscaler.simulator.world.world import SimulatedWorld
from tests.chaos.cluster_fleets import SETTINGS
from tests.chaos.mix import schedule_of
from tests.chaos.trial import PATIENCE
from tests.controller.virtual_time import on_virtual_time

pytestmark = pytest.mark.systems

SEED = 4
"""With an outage of GitHub while runners register."""

ASKED_EVERY = 30.0


def passed(controller: Controller, tick: float) -> list[str]:
    """Return the announcements whose moment has passed for longer than a pass may take."""
    found = []
    journal = controller.journal
    for job in list(journal.ledger.state.jobs.values()):
        explained = controller.queries.explain(job.id) if job.state is JobState.QUEUED else None
        event = explained.next_event if explained is not None else None
        if event is not None and event.at is not None and event.at < journal.now - tick - 5.0:
            found.append(f"job {job.id}: {event.what}, {journal.now - event.at:.0f} s ago")
    return found


@on_virtual_time
async def test_no_announced_moment_has_passed() -> None:
    schedule = schedule_of(SEED)
    setting = SETTINGS[schedule.fleet]
    world, found, asked = SimulatedWorld(setting, schedule), list[str](), 0

    async def ask() -> None:
        nonlocal asked
        while True:
            await asyncio.sleep(ASKED_EVERY)
            try:
                found.extend(passed(world.supervisor.current().ready, setting.pace.tick))
            except ProcessGoneError:
                continue
            asked += 1

    asking = unowned(ask())
    await world.run(PATIENCE)
    asking.cancel()
    assert found == []
    assert asked > 100
