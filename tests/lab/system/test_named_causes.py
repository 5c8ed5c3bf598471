"""Faults in a laboratory at work: the first page names each one's cause and next action, and nothing else.

These are two pairs. benchmarks/named_causes.py plays all faults, and more pairs.
"""

import asyncio
from collections.abc import Mapping
from itertools import chain

from autoscaler.model.reasons.entry import Code
from autoscaler.model.reasons.table import FaultCode, WaitCode, cause_of
from lab.ec2.moto import MotoProcess
from tests.lab.system.loaded_lab import LoadedLab
from tests.lab.system.pace import PATIENCE, stretched, yielding
from tests.lab.system.watched_faults import Watch, is_of_host, laboratory_for, lift, look, plant

SCALE = 30.0
READINGS = 10
"""Readings of the page that have to show nothing else, once it names the faults."""

PAIRS: Mapping[tuple[str, str], tuple[Code, ...]] = {
    ("quota 0", "forgotten pause"): (),
    ("webhooks lost", "secondary rate limit"): (
        FaultCode.GITHUB_LISTS_STALE,
        FaultCode.JOBS_START_LATE,
        WaitCode.JOB_UNCONFIRMED,
        WaitCode.RUN_UNKNOWN,
    ),
}
"""Played one after the other in one laboratory, whose start takes longer than the first pair.

Each has the codes that may stand beside it. Lost webhooks are a fault after half an hour: lists grow old and
jobs late meanwhile, and stay so for a while after the end.
"""


async def test_the_first_page_names_causes_and_next_actions_and_no_consequence(
    moto: MotoProcess,
) -> None:
    names = list(chain.from_iterable(PAIRS))
    async with laboratory_for(moto, yielding(SCALE), names) as made:
        shown = (await made.read()).faults
        assert [text for text in shown if not is_of_host(text)] == []
        for pair, beside in PAIRS.items():
            await _distinguished(made, pair, tuple(map(cause_of, beside)))


async def _distinguished(made: LoadedLab, names: tuple[str, ...], beside: tuple[str, ...]) -> None:
    def unexpected(found: Mapping[str, str]) -> list[str]:
        return [text for text in found.values() if not text.startswith(beside)]

    seen = await plant(made, names)
    await _until(made, seen, "named")
    for _ in range(READINGS):
        await look(made, seen)
    assert unexpected(seen.others) == []
    assert [one.misleading for one in seen.sightings] == [""] * len(names)
    await lift(made, seen)
    await _until(made, seen, "gone")
    assert unexpected(seen.after) == []


async def _until(made: LoadedLab, seen: Watch, what: str) -> None:
    """Read the page until each sighting has this moment. Raises AssertionError with what was seen."""
    try:
        async with asyncio.timeout(stretched(PATIENCE)):
            while not all(getattr(one, what) for one in seen.sightings):
                await look(made, seen)
    except TimeoutError as error:
        raise AssertionError(f"not {what}: {seen}") from error
