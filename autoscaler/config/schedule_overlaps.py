"""Finds the largest sum of all SKUs' minimums, with their schedules, within a year."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from zoneinfo import ZoneInfo

from cronsim import CronSim

from autoscaler.config.sku_settings import Idle, Schedule

_BEGIN = datetime(2028, 1, 1, tzinfo=UTC)
_END = datetime(2029, 1, 1, tzinfo=UTC)
"""A leap year, so that every date and every change to or from daylight saving time is in it."""

FIRINGS_AT_MOST = 4000
"""Starts of one schedule that are considered. A start in every working hour of a year makes 2,900."""

Entry = tuple[str, int]
"""A SKU and the number of one of its schedules."""


@dataclass(frozen=True, slots=True)
class Largest:
    """The largest sum of the minimums, and the schedules in it, in the order of the file."""

    machines: int
    entries: tuple[Entry, ...]


def largest_minimum(idle: Mapping[str, Idle]) -> Largest:
    """Return the largest sum of `idle.min` and the schedules of all SKUs at any moment of a year."""
    counts: dict[str, tuple[int, int | None]] = {n: (one.minimum, None) for n, one in idle.items()}
    in_force: Counter[Entry] = Counter()
    largest = Largest(sum(one.minimum for one in idle.values()), ())
    for _, begins, (name, index) in sorted(_changes(idle)):
        in_force[name, index] += 1 if begins else -1
        counts[name] = _count(name, idle[name], in_force)
        machines = sum(minimum for minimum, _ in counts.values())
        if machines > largest.machines:
            entries = ((one, at) for one, (_, at) in counts.items() if at is not None)
            largest = Largest(machines, tuple(entries))
    return largest


def _count(name: str, idle: Idle, in_force: Mapping[Entry, int]) -> tuple[int, int | None]:
    """Return a SKU's minimum and the schedule that sets it, as planner/schedule.py counts."""
    found: tuple[int, int | None] = (idle.minimum, None)
    for index, schedule in enumerate(idle.schedule):
        if in_force[name, index] and schedule.minimum > found[0]:
            found = schedule.minimum, index
    return found


def _changes(idle: Mapping[str, Idle]) -> Iterator[tuple[datetime, bool, Entry]]:
    """Return when each schedule begins and ends. At the same moment, ends sort first."""
    for name, one in idle.items():
        for index, schedule in enumerate(one.schedule):
            for begin in _firings(schedule):
                yield begin, True, (name, index)
                yield begin + timedelta(seconds=schedule.duration), False, (name, index)


def _firings(schedule: Schedule) -> Iterator[datetime]:
    simulated = CronSim(schedule.cron, _BEGIN.astimezone(ZoneInfo(schedule.timezone)))
    firings = (firing.astimezone(UTC) for firing in simulated)
    return takewhile(lambda at: at < _END, islice(firings, FIRINGS_AT_MOST))
