"""Carries out examinations at the same time, each within a bounded time, by group.

`autoscaler doctor` carries out all of a fleet, and `check --online` those of its providers.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence

from autoscaler.config.examinations import Check, Examination, unknown
from autoscaler.model.identifiers import Seconds
from autoscaler.observability.redaction import redact_text

Group = tuple[str, tuple[Check, ...]]


async def examine(examined: Iterable[Examination], within: Seconds) -> AsyncGenerator[Group, None]:
    """Yield each group with its checks, as soon as all of the group have ended.

    An examination may take `within` seconds. All run at the same time, so this also bounds the whole.
    """
    groups: dict[str, list[Examination]] = {}
    for one in examined:
        groups.setdefault(one.group, []).append(one)
    ending = [asyncio.create_task(_group(name, of, within)) for name, of in groups.items()]
    try:
        for group in asyncio.as_completed(ending):
            yield await group
    finally:
        for task in ending:
            task.cancel()


async def _group(name: str, examined: Sequence[Examination], within: Seconds) -> Group:
    found = await asyncio.gather(*(_bounded(one, within) for one in examined))
    return name, tuple(check for checks in found for check in checks)


async def _bounded(one: Examination, within: Seconds) -> Sequence[Check]:
    """Return the checks of an examination, whatever happens in it: one that fails hides no other."""
    try:
        async with asyncio.timeout(within):
            return await one.run()
    except TimeoutError:
        what = f"no answer in {within:g} s"
        return [unknown(one.name, what, "look at the network and the proxy of this host")]
    except Exception as error:  # noqa: BLE001 - see above; the text says what it was
        text = redact_text(f"{type(error).__name__}: {error}")
        return [unknown(one.name, f"it could not be checked: {text}")]
