"""Faults in a laboratory at work: the first page names each one's cause and next action, and nothing else.

These are two pairs. benchmarks/named_causes.py plays all faults, and more pairs.
"""

import asyncio

from lab.ec2.moto import MotoProcess
from tests.lab.system.loaded_lab import LoadedLab
from tests.lab.system.pace import PATIENCE, stretched, yielding
from tests.lab.system.watched_faults import Watch, is_of_host, laboratory_for, lift, look, plant

SCALE = 30.0
READINGS = 10
"""Readings of the page that have to show nothing else, once it names the faults."""

PAIRS = (("quota 0", "forgotten pause"), ("webhooks lost", "secondary rate limit"))
"""Played one after the other in one laboratory, whose start takes longer than the first pair."""


async def test_the_first_page_names_causes_and_next_actions_and_no_consequence(
    moto: MotoProcess,
) -> None:
    names = [name for pair in PAIRS for name in pair]
    async with laboratory_for(moto, yielding(SCALE), names) as made:
        shown = (await made.read()).faults
        assert [text for text in shown if not is_of_host(text)] == []
        for pair in PAIRS:
            await _told_apart(made, pair)


async def _told_apart(made: LoadedLab, names: tuple[str, ...]) -> None:
    seen = await plant(made, names)
    await _until(made, seen, "named")
    for _ in range(READINGS):
        await look(made, seen)
    assert seen.others == {}
    assert [one.misleading for one in seen.sightings] == [""] * len(names)
    await lift(made, seen)
    await _until(made, seen, "gone")
    assert seen.after == {}


async def _until(made: LoadedLab, seen: Watch, what: str) -> None:
    """Read the page until each sighting has this moment. Raises AssertionError with what was seen."""
    try:
        async with asyncio.timeout(stretched(PATIENCE)):
            while not all(getattr(one, what) for one in seen.sightings):
                await look(made, seen)
    except TimeoutError as error:
        raise AssertionError(f"not {what}: {seen}") from error
