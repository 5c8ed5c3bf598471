"""Worlds that had a violation, shrunk. Each file has the name of its seed."""

from pathlib import Path

import pytest

from autoscaler.simulator.world.schedule import from_json
from tests.chaos.trial import play

pytestmark = pytest.mark.systems

WORLDS = sorted((Path(__file__).parent / "schedules").glob("*.json"))


@pytest.mark.parametrize("path", WORLDS, ids=lambda path: path.stem)
def test_a_mended_world_has_no_violation(path: Path) -> None:
    assert play(from_json(path.read_text())).violations == ()
