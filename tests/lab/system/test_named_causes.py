"""Faults in a laboratory at work: the first page names each one's cause and next action, and nothing else."""

import asyncio

import pytest

from lab.ec2.moto import MotoProcess
from tests.lab.system.loaded_lab import LoadedLab
from tests.lab.system.pace import PATIENCE, stretched, yielding
from tests.lab.system.watched_faults import Watch, laboratory_for, lift, look, plant

SCALE = 30.0
READINGS = 10
"""Readings of the page that have to show nothing else, once it names the faults."""


async def _until(made: LoadedLab, seen: Watch, what: str) -> None:
    """Read the page until each sighting has this moment. Raises AssertionError with what was seen."""
    try:
        async with asyncio.timeout(stretched(PATIENCE)):
            while not all(getattr(one, what) for one in seen.sightings):
                await look(made, seen)
    except TimeoutError as error:
        raise AssertionError(f"not {what}: {seen}") from error


@pytest.mark.parametrize(
    "names",
    [
        ("quota 0",),
        ("AWS credentials expired",),
        ("secondary rate limit",),
        ("out of capacity", "failing GPU check"),
        ("label typo", "forgotten pause"),
    ],
    ids=" and ".join,
)
async def test_the_first_page_names_causes_and_next_actions_and_no_consequence(
    moto: MotoProcess, names: tuple[str, ...]
) -> None:
    async with laboratory_for(moto, yielding(SCALE), names) as made:
        assert (await made.read()).faults == ()
        seen = await plant(made, names)
        await _until(made, seen, "named")
        for _ in range(READINGS):
            await look(made, seen)
        assert seen.others == {}
        assert [one.misleading for one in seen.sightings] == [""] * len(names)
        await lift(made, seen)
        await _until(made, seen, "gone")
        assert seen.after == {}
