"""The ready minimum at a time: cron expressions, time zones with DST, durations and overlaps."""

from datetime import UTC, datetime

import pytest

from autoscaler.model.catalogue import IdlePolicy, ScheduledMinimum
from autoscaler.planner.scale_down import idle_minimum

NEW_YORK = "America/New_York"


def policy(*scheduled: tuple[str, str, float, int], minimum: int = 0) -> IdlePolicy:
    return IdlePolicy(minimum=minimum, schedule=tuple(ScheduledMinimum(*s) for s in scheduled))


def at(day: str, time: str) -> float:
    """Return a time in UTC."""
    return datetime.fromisoformat(f"{day}T{time}").replace(tzinfo=UTC).timestamp()


def in_force(known: IdlePolicy, day: str, *times: str) -> list[int]:
    return [idle_minimum(known, at(day, time)) for time in times]


def test_without_a_schedule_the_base_minimum_applies() -> None:
    assert idle_minimum(IdlePolicy(minimum=3), 0.0) == 3
    assert idle_minimum(IdlePolicy(), 0.0) == 0


def test_a_schedule_applies_from_its_start_for_its_duration() -> None:
    daily = policy(("30 7 * * *", "UTC", 3600.0, 5))
    times = ("07:29", "07:29:59", "07:30", "07:30:01", "08:29:59", "08:30")
    assert in_force(daily, "2026-06-01", *times) == [0, 0, 5, 5, 5, 0]


def test_schedules_of_a_minute_and_of_a_day_have_their_exact_duration() -> None:
    short = policy(("0 * * * *", "UTC", 60.0, 5))
    assert in_force(short, "2026-06-01", "07:00", "07:01") == [5, 0]
    long = policy(("0 0 * * *", "UTC", 86_400.0, 5))
    assert in_force(long, "2026-06-01", "00:00", "12:00", "23:59") == [5, 5, 5]


@pytest.mark.parametrize(("length", "minutes"), [(59.0, 1), (60.0, 1), (61.0, 2), (119.0, 2)])
def test_the_duration_of_a_schedule_is_rounded_up_to_whole_minutes(
    length: float, minutes: int
) -> None:
    begun = policy(("0 7 * * *", "UTC", length, 5))
    times = ("06:59", "07:00", "07:01", "07:02")
    assert in_force(begun, "2026-06-01", *times) == [0, *[5] * minutes, *[0] * (3 - minutes)]


@pytest.mark.case(
    "schedules across midnight, and when the clocks change",
    topic="Operators' files",
    source="ARC#2986; ARC#3313",
)
def test_a_schedule_can_continue_past_midnight() -> None:
    night = policy(("0 23 * * *", "UTC", 3 * 3600.0, 5))
    assert in_force(night, "2026-06-02", "00:00", "01:59", "02:00", "22:59") == [5, 5, 0, 0]


def test_a_schedule_applies_only_on_its_weekdays() -> None:
    weekdays = policy(("0 7 * * 1-5", "UTC", 3600.0, 20), minimum=2)
    friday, saturday = "2026-06-05", "2026-06-06"
    assert in_force(weekdays, friday, "07:30") == [20]
    assert in_force(weekdays, saturday, "07:30") == [2]


def test_the_largest_of_overlapping_schedules_applies() -> None:
    both = policy(("0 7 * * *", "UTC", 7200.0, 5), ("0 8 * * *", "UTC", 7200.0, 3), minimum=1)
    assert in_force(both, "2026-06-01", "06:59", "07:30", "08:30", "09:30", "10:00") == [
        1,
        5,
        5,
        3,
        1,
    ]


def test_the_larger_of_base_minimum_and_schedule_applies() -> None:
    small = policy(("0 7 * * *", "UTC", 3600.0, 1), minimum=4)
    assert in_force(small, "2026-06-01", "07:30") == [4]


def test_a_schedule_of_zero_machines_keeps_none_ready() -> None:
    assert in_force(policy(("0 7 * * *", "UTC", 3600.0, 0)), "2026-06-01", "07:30") == [0]


@pytest.mark.parametrize(("day", "utc"), [("2026-01-15", "12"), ("2026-07-15", "11")])
def test_hours_are_those_of_the_timezone_in_winter_and_summer(day: str, utc: str) -> None:
    morning = policy(("0 7 * * *", NEW_YORK, 3600.0, 5))
    before = f"{int(utc) - 1}:59"
    assert in_force(morning, day, before, f"{utc}:00", f"{utc}:59") == [0, 5, 5]


def test_three_hours_are_three_hours_when_the_clock_springs_forward() -> None:
    night = policy(("0 1 * * *", NEW_YORK, 3 * 3600.0, 2))
    times = ("05:59", "06:00", "07:30", "08:30", "08:59", "09:00")
    assert in_force(night, "2026-03-08", *times) == [0, 2, 2, 2, 2, 0]


def test_three_hours_are_three_hours_when_the_clock_falls_back() -> None:
    night = policy(("0 1 * * *", NEW_YORK, 3 * 3600.0, 2))
    times = ("04:59", "05:00", "05:59", "06:30", "07:59", "08:00", "08:30")
    assert in_force(night, "2026-11-01", *times) == [0, 2, 2, 2, 2, 0, 0]


@pytest.mark.case(
    "schedules across midnight, and when the clocks change",
    topic="Operators' files",
    source="ARC#2986; ARC#3313",
)
def test_an_hour_that_the_clock_repeats_starts_a_schedule_once() -> None:
    twice = policy(("45 1 * * *", NEW_YORK, 3600.0, 2))
    times = ("05:44", "05:45", "06:00", "06:30", "06:44", "06:45", "06:59")
    assert in_force(twice, "2026-11-01", *times) == [0, 2, 2, 2, 2, 0, 0]


def test_a_cron_expression_for_a_leap_day_matches_only_that_day() -> None:
    leap = policy(("0 0 29 2 *", "UTC", 3600.0, 9), minimum=1)
    assert in_force(leap, "2026-06-01", "00:00") == [1]
    assert in_force(leap, "2028-02-29", "00:30", "01:00") == [9, 1]
