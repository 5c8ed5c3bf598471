"""The host's clock was hours or years ahead for a while, and is set right: the controller starts again."""

import pytest

from autoscaler.simulator.world.schedule import Fault, FaultKind
from autoscaler.simulator.world.virtual_time import EPOCH
from tests.views.situations import Situation, job, situation

pytestmark = pytest.mark.systems

HOURS = 20 * 3600
YEARS = 5 * 365 * 86_400


def ahead(seconds: int) -> Fault:
    """Return a clock that is ahead from second 100 to second 700."""
    return Fault(100.0, FaultKind.CLOCK_JUMP, 600.0, target=seconds)


async def follows(it: Situation, seconds: int) -> None:
    """Check that the controller believed its host's clock, and believes it again after a new start."""
    await it.at(650.0)
    assert it.controller.journal.now == pytest.approx(EPOCH + seconds + 650.0, abs=1.0)
    await it.at(1400.0)
    assert it.controller.journal.now == pytest.approx(EPOCH + 1400.0, abs=1.0)


@situation(
    *(job(number, at=at, works=2000.0) for number, at in enumerate((5.0, 450.0, 750.0, 1190.0), 1)),
    ahead(HOURS),
    lists=True,
)
async def test_no_job_is_lost_when_a_clock_is_set_back_by_hours(it: Situation) -> None:
    await follows(it, HOURS)


@pytest.mark.case(
    "the host's clock was years ahead until the controller believed it, and is set back",
    topic="EC2's machines",
    source="Python: time.time",
)
@situation(
    *(job(number, at=at, works=2000.0) for number, at in enumerate((1250.0, 1500.0), 1)),
    ahead(YEARS),
    lists=True,
)
async def test_jobs_are_served_after_a_clock_was_set_back_by_years(it: Situation) -> None:
    await follows(it, YEARS)
