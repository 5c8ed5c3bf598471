"""Finds the moment at which the scheduled minimums of all SKUs together are largest."""

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
"""A leap year, so that each date and each change of the clocks is in it."""

FIRINGS_AT_MOST = 4000
"""Beginnings of one schedule that are looked at: those of every working hour in a year are 2,900."""

Entry = tuple[str, int]
"""A SKU and the number of one of its schedules."""


@dataclass(frozen=True, slots=True)
class Largest:
    """The largest sum of the minimums, and the schedules that it comes from, in the file's order."""

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
    """The minimum of a SKU and the schedule that it comes from, as planner/schedule.py counts."""
    found: tuple[int, int | None] = (idle.minimum, None)
    for index, schedule in enumerate(idle.schedule):
        if in_force[name, index] and schedule.minimum > found[0]:
            found = schedule.minimum, index
    return found


def _changes(idle: Mapping[str, Idle]) -> Iterator[tuple[datetime, bool, Entry]]:
    """When each schedule begins and ends; at one moment, the ends sort before the beginnings."""
    for name, one in idle.items():
        for index, schedule in enumerate(one.schedule):
            for begin in _firings(schedule):
                yield begin, True, (name, index)
                yield begin + timedelta(seconds=schedule.duration), False, (name, index)


def _firings(schedule: Schedule) -> Iterator[datetime]:
    simulated = CronSim(schedule.cron, _BEGIN.astimezone(ZoneInfo(schedule.timezone)))
    firings = (firing.astimezone(UTC) for firing in simulated)
    return takewhile(lambda at: at < _END, islice(firings, FIRINGS_AT_MOST))
