"""Finds the largest sum of all SKUs' minimums, with their schedules, within a year."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from zoneinfo import ZoneInfo

from cronsim import CronSim

from autoscaler.config.settings.sku import Idle, Schedule

_BEGIN = datetime(2028, 1, 1, tzinfo=UTC)
_END = datetime(2029, 1, 1, tzinfo=UTC)
"""A leap year, so that every date and every change to or from daylight saving time is in it."""

MAX_STARTS = 4000
"""Maximum number of starts of one schedule that are considered. One in every working hour makes 2,900."""

MAX_STARTS_TOGETHER = 60_000
"""Maximum number of starts of all schedules: those of a year for 160 schedules with a start every day. Each
schedule gets the same share, from the beginning of the year."""

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
    machines = largest.machines
    for _, begins, (name, index) in sorted(changes(idle)):
        in_force[name, index] += 1 if begins else -1
        before, _ = counts[name]
        counts[name] = _count(name, idle[name], in_force)
        machines += counts[name][0] - before
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


def changes(idle: Mapping[str, Idle]) -> Iterator[tuple[datetime, bool, Entry]]:
    """Return when each schedule begins and ends. At the same moment, ends sort first."""
    schedules = sum(len(one.schedule) for one in idle.values())
    most = min(MAX_STARTS, MAX_STARTS_TOGETHER // max(1, schedules))
    for name, one in idle.items():
        for index, schedule in enumerate(one.schedule):
            for begin in islice(_starts(schedule), most):
                yield begin, True, (name, index)
                yield begin + timedelta(seconds=schedule.duration), False, (name, index)


def _starts(schedule: Schedule) -> Iterator[datetime]:
    simulated = CronSim(schedule.cron, _BEGIN.astimezone(ZoneInfo(schedule.timezone)))
    return takewhile(lambda at: at < _END, (start.astimezone(UTC) for start in simulated))
