"""Examinations are bounded and independent of one another, and groups are reported as they end."""

import asyncio
from collections.abc import Sequence

from autoscaler.app.examining import Group, examine
from autoscaler.config.examinations import Check, Examination, fine, wrong


async def groups_of(*examined: Examination, within: float = 0.05) -> list[Group]:
    return [group async for group in examine(examined, within)]


async def good() -> Sequence[Check]:
    return [fine("good", "it is")]


async def bad() -> Sequence[Check]:
    return [wrong("bad", "it is", "it matters", "mend it")]


async def broken() -> Sequence[Check]:
    raise RuntimeError(f"ghp_{'a' * 36}")


async def endless() -> Sequence[Check]:
    await asyncio.Event().wait()
    return []


async def test_one_that_fails_or_hangs_hides_no_other() -> None:
    ((_, checks),) = await groups_of(
        Examination("one", "broken", broken),
        Examination("one", "endless", endless),
        Examination("one", "good", good),
        Examination("one", "bad", bad),
    )
    found = {check.name: check.outcome.value for check in checks}
    assert found == {"broken": "unknown", "endless": "unknown", "good": "fine", "bad": "wrong"}
    said = {check.name: check.what for check in checks}
    assert said["endless"] == "no answer in 0.05 s"
    assert said["broken"] == "it could not be checked: RuntimeError: [redacted]"


async def test_a_group_is_reported_while_another_one_hangs() -> None:
    found = examine(
        [Examination("slow", "endless", endless), Examination("quick", "good", good)], 60.0
    )
    name, _ = await anext(found)
    assert name == "quick"
    await found.aclose()
