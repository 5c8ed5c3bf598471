"""Plants faults in a laboratory at work, and notes what the first page says of them, and when."""

import asyncio
import re
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from autoscaler.model.reasons.table import FaultCode, cause_of
from lab.ec2.moto import MotoProcess
from tests.lab.system.loaded_lab import LoadedLab, Reading, Settings, loaded
from tests.lab.system.planted_faults import FAULTS, PlantedFault

READ_EVERY = 0.5
"""Real seconds between two readings of the first page."""

DISK_MB = 24

OF_THE_HOST = tuple(cause_of(code) for code in (FaultCode.STORE_SLOW, FaultCode.CONTROLLER_SLOW))
"""Causes that a busy host has by itself: they follow from no planted fault."""

RECOVERED = re.compile(r"recovered|has ended", re.IGNORECASE)
"""The words of a fault that is over."""


@dataclass(slots=True)
class Sighting:
    """What was seen of one planted fault. Moments are Unix times, and None before they came.

    `known` is when the controller first logged or counted it, with this `event`. `cause` is when the page first
    named the cause, and `named` when one entry, number `rank`, named cause and action. `gone` is when the page
    no longer showed it after its end. `text` is the entry, and `misleading` one with words that mislead.
    """

    name: str
    planted: float
    known: float | None = None
    event: str = ""
    cause: float | None = None
    named: float | None = None
    rank: int = 0
    lifted: float | None = None
    gone: float | None = None
    text: str = ""
    misleading: str = ""


@dataclass(slots=True)
class Watch:
    """What was seen of faults planted at once.

    `before` are the metrics before that. `others` are entries of the page that name none of the faults, by
    their causes: the first text of each. `after` are those that were first seen after the end of the faults.
    `of_host` are those that are true of a busy host, and say nothing about the planted faults. `clear` is when
    the page showed none. `events` counts the events in the log meanwhile.
    """

    sightings: list[Sighting]
    before: dict[str, float]
    others: dict[str, str] = field(default_factory=dict)
    after: dict[str, str] = field(default_factory=dict)
    of_host: dict[str, str] = field(default_factory=dict)
    clear: float | None = None
    events: dict[str, int] = field(default_factory=dict)


@asynccontextmanager
async def laboratory_for(
    moto: MotoProcess, scale: float, names: Sequence[str]
) -> AsyncIterator[LoadedLab]:
    """Start a laboratory in which these faults can be planted."""
    faults = [FAULTS[name] for name in names]
    changes = [one.prepare for one in faults]
    if not any(one.small_disk for one in faults):
        async with loaded(moto, scale, changes) as made:
            yield made
        return
    with _small_disk() as folder:

        def store(settings: Settings) -> None:
            settings["store"] = f"sqlite:///{folder}/state.db"

        async with loaded(moto, scale, [*changes, store]) as made:
            made.memory["disk"] = folder
            yield made


@contextmanager
def _small_disk() -> Iterator[Path]:
    """Mount a file system in memory, which needs root."""
    with TemporaryDirectory(prefix="autoscaler-disk-") as folder:
        size = f"size={DISK_MB}m"
        subprocess.run(("mount", "-t", "tmpfs", "-o", size, "none", folder), check=True)
        try:
            yield Path(folder)
        finally:
            subprocess.run(("umount", folder), check=True)


async def watch(made: LoadedLab, names: Sequence[str], aftermath: float, recovery: float) -> Watch:
    """Plant faults, and watch the page until it names all their causes, and then for `aftermath`.

    After that lift them, and watch until the page shows none of them, for at most `recovery`, and then for
    `aftermath`. All are lab seconds.
    """
    seen = await plant(made, names)

    async def look_for(seconds: float, over: Callable[[], bool] = lambda: False) -> None:
        end = made.lab.clock.now() + seconds
        while made.lab.clock.now() < end and not over():
            await look(made, seen)

    patience = max(FAULTS[name].patience for name in names)
    await look_for(patience, lambda: all(one.cause for one in seen.sightings))
    await look_for(aftermath)
    await lift(made, seen)
    await look_for(recovery, lambda: all(one.gone for one in seen.sightings))
    await look_for(aftermath)
    return seen


async def plant(made: LoadedLab, names: Sequence[str]) -> Watch:
    """Plant faults. Return what is seen of them from now on, which `look` fills."""
    made.new_log_lines()
    before = await made.lab.controller.metrics()
    seen = Watch([Sighting(name, time.time()) for name in names], before)
    for name in names:
        await FAULTS[name].plant(made)
    return seen


async def lift(made: LoadedLab, seen: Watch) -> None:
    """End the faults."""
    for sighting in seen.sightings:
        await FAULTS[sighting.name].lift(made)
        sighting.lifted = time.time()


async def look(made: LoadedLab, seen: Watch) -> None:
    """Read the log, the metrics and the first page, note what they show, and wait for the next reading."""
    _note_knowledge(seen, made, await made.lab.controller.metrics())
    note(seen, await made.read())
    await asyncio.sleep(READ_EVERY)


def _note_knowledge(seen: Watch, made: LoadedLab, metrics: dict[str, float]) -> None:
    for at, line in made.new_log_lines():
        event = str(line["event"])
        seen.events[event] = seen.events.get(event, 0) + 1
        for one in seen.sightings:
            if one.known is None and at >= one.planted and _is_about(line, FAULTS[one.name]):
                one.known, one.event = at, event
    for one in seen.sightings:
        wanted = FAULTS[one.name].metric
        if one.known is None and wanted:
            risen = (name for name, value in metrics.items() if value > seen.before.get(name, 0.0))
            if any(name.startswith(wanted) for name in risen):
                one.known, one.event = time.time(), wanted


def _is_about(line: Mapping[str, object], fault: PlantedFault) -> bool:
    """Return whether a line of the log is one by which the controller shows that it knows of a fault."""
    for one in fault.log:
        event, _, value = one.partition(" ")
        if str(line["event"]).startswith(event) and (not value or value in line.values()):
            return True
    return False


def note(seen: Watch, reading: Reading) -> None:
    """Note what a reading of the page shows."""
    texts = [text for text in reading.faults if not RECOVERED.search(text)]
    lifted = all(one.lifted is not None for one in seen.sightings)
    mine: set[str] = set()
    for one in seen.sightings:
        fault = FAULTS[one.name]
        about = [text for text in texts if _says(fault.cause, text)]
        mine.update(about)
        if one.lifted is not None:
            if not about and one.gone is None:
                one.gone = reading.at
            continue
        _note_words(one, fault, about, texts, reading.at)
    for text in texts:
        if text not in mine:
            others = seen.after if lifted else seen.others
            (seen.of_host if is_of_host(text) else others).setdefault(_heading(text), text)
    if lifted and not texts and seen.clear is None:
        seen.clear = reading.at


def is_of_host(text: str) -> bool:
    """Return True if an entry of the page is about the host on which the laboratory runs."""
    return text.startswith(OF_THE_HOST)


def _note_words(
    one: Sighting, fault: PlantedFault, about: list[str], texts: list[str], at: float
) -> None:
    if about and one.cause is None:
        one.cause, one.text = at, about[0]
    whole = next((text for text in about if _is_whole(fault, text)), None)
    if whole is not None and one.named is None:
        one.named, one.text, one.rank = at, whole, texts.index(whole) + 1
    if fault.wrong and not one.misleading:
        one.misleading = next((text for text in about if _says(fault.wrong, text)), "")


def _is_whole(fault: PlantedFault, text: str) -> bool:
    """Return True if an entry has the next action, and no words that mislead."""
    return _says(fault.action, text) and not (fault.wrong and _says(fault.wrong, text))


def _says(pattern: str, text: str) -> bool:
    return re.search(pattern, text, re.IGNORECASE) is not None


def _heading(text: str) -> str:
    """Return the cause in bold, with which an entry begins."""
    return text.partition(" · ")[0][:60]
