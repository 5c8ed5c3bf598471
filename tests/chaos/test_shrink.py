"""Schedules as values: stored, replayed with the same result, and shrunk to what causes a failure."""

import pytest

from autoscaler.simulator.world.schedule import Fault, FaultKind, JobArrival, Schedule, from_json
from tests.chaos.__main__ import kind_of
from tests.chaos.mix import schedule_of
from tests.chaos.shrink import shrink
from tests.chaos.trial import play

pytestmark = pytest.mark.systems

NO_SCHEDULES = [
    "{}",
    "[]",
    "1",
    "{",
    "# Readme",
    '{"seed": 1, "jobs": [], "faults": [{"at": 1}]}',
    '{"seed": 1, "jobs": [], "faults": [{"at": 1, "kind": "rain"}]}',
    '{"seed": 1, "jobs": 5, "faults": []}',
    '{"seed": 1, "jobs": [5], "faults": []}',
    '{"seed": 1, "jobs": [{"labels": []}], "faults": []}',
]


def test_a_schedule_is_the_same_after_it_was_stored() -> None:
    schedule = schedule_of(7)
    assert from_json(schedule.to_json()) == schedule
    assert schedule_of(7) == schedule
    assert schedule_of(8) != schedule


@pytest.mark.parametrize("text", NO_SCHEDULES)
def test_a_file_that_is_no_schedule_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        from_json(text)


def test_a_schedule_plays_the_same_each_time() -> None:
    schedule = schedule_of(3)
    assert play(schedule) == play(schedule)


def test_shrinking_leaves_only_what_causes_the_failure() -> None:
    schedule = schedule_of(5)
    wanted: set[Fault | JobArrival] = {schedule.faults[2], schedule.jobs[11], schedule.jobs[40]}
    played: list[int] = []

    def goes_wrong(part: Schedule) -> bool:
        played.append(len(part))
        return wanted <= {*part.faults, *part.jobs}

    small = shrink(schedule, goes_wrong)
    assert {*small.faults, *small.jobs} == wanted
    assert len(played) < 200
    assert [line.split()[0] for line in small.timeline().splitlines()] == sorted(
        (f"{thing.at:.1f}" for thing in wanted), key=float
    )


def test_a_shrunk_schedule_still_fails_when_the_tries_are_over() -> None:
    schedule = schedule_of(5)
    small = shrink(schedule, lambda part: len(part.jobs) >= 3, tries=4)
    assert 3 <= len(small.jobs) <= len(schedule.jobs)


def test_a_timeline_reads_in_order() -> None:
    moments = [float(line.split()[0]) for line in schedule_of(1).timeline().splitlines()]
    assert moments == sorted(moments)
    assert any(kind in schedule_of(1).timeline() for kind in FaultKind)


def test_a_violation_keeps_its_kind_while_names_and_numbers_change() -> None:
    assert kind_of("i-east-3 was stopped at work") == kind_of("i-west-14 was stopped at work")
    assert kind_of("job 3 ran twice") != kind_of("job 3 starves beside a ready machine")
