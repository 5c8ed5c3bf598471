"""Faults over time: begins, ends, flaps and trends."""

from collections.abc import Sequence
from dataclasses import replace

from autoscaler.model.reasons.faults import Fault, Trend
from autoscaler.model.reasons.spells import (
    GONE_AFTER,
    FaultSpell,
    Open,
    OpenFault,
    compared,
    row_of,
    spell_of,
    spells_of,
    with_times,
)

QUOTA = Fault("quota", "gpu", "the quota is used up", ("gpu",))
SLOW = Fault("store_slow", "", "slow")

Look = tuple[float, Sequence[Fault]]


def at(now: float, *faults: Fault) -> Look:
    return now, faults


def played(*looks: Look, room: int = 9) -> list[FaultSpell]:
    return _played(*looks, room=room)[1]


def lasting(*looks: Look) -> Open:
    return _played(*looks, room=9)[0]


def _played(*looks: Look, room: int) -> tuple[Open, list[FaultSpell]]:
    known: Open = {}
    changes: list[FaultSpell] = []
    for now, seen in looks:
        known, changed = compared(known, seen, now, room)
        changes += changed
    return known, changes


def test_a_fault_has_a_begin_and_ends_when_it_was_there_last() -> None:
    looks = [at(100.0, QUOTA), at(110.0, QUOTA), at(120.0), at(110.0 + GONE_AFTER)]
    began = spell_of(QUOTA, 100.0)
    assert played(*looks[:-1]) == [began]
    assert played(*looks) == [began, replace(began, ended=110.0)]


def test_a_fault_that_flaps_is_one_and_one_that_comes_back_later_is_another() -> None:
    flaps = [look for k in range(5) for look in (at(100.0 * k, QUOTA), at(100.0 * k + 50.0))]
    assert played(*flaps) == [spell_of(QUOTA, 0.0)]
    assert [one.since for one in with_times(lasting(*flaps), [QUOTA], 500.0)] == [0.0]
    again = 400.0 + GONE_AFTER
    changes = played(*flaps, at(again), at(again + 1.0, QUOTA))
    assert [(one.began, one.ended) for one in changes] == [
        (0.0, None),
        (0.0, 400.0),
        (again + 1.0, None),
    ]
    assert [one.since for one in with_times(lasting(*flaps, at(again)), [QUOTA], again)] == [again]


def test_a_fault_that_is_gone_and_seen_at_once_goes_on() -> None:
    assert len(played(at(0.0, QUOTA), at(GONE_AFTER, QUOTA))) == 1


def test_a_fault_remembers_its_worst_moment() -> None:
    looks = [
        at(10.0 * k, replace(QUOTA, jobs=jobs, message=f"{jobs} jobs"))
        for k, jobs in enumerate((3, 8, 5))
    ]
    ended = played(*looks, at(1000.0))[-1]
    assert (ended.began, ended.jobs, ended.message) == (0.0, 8, "8 jobs")


def test_faults_of_one_code_differ_by_what_they_are_about() -> None:
    other = replace(QUOTA, about="cpu")
    assert len(played(at(0.0, QUOTA, other, SLOW))) == 3


def test_no_more_faults_are_recorded_than_there_is_room_for_and_the_others_later() -> None:
    assert played(at(5.0, QUOTA, SLOW), room=1) == [spell_of(QUOTA, 5.0)]
    assert played(at(5.0, QUOTA, SLOW), at(6.0, QUOTA, SLOW), room=1) == [
        spell_of(QUOTA, 5.0),
        spell_of(SLOW, 5.0),
    ]
    assert played(at(5.0, QUOTA), at(999.0), room=0) == []


def test_the_trend_compares_the_jobs_with_those_of_five_minutes_ago() -> None:
    counts = [at(100.0 * k, replace(QUOTA, jobs=jobs)) for k, jobs in enumerate((9, 3, 3, 3, 5))]

    def trend(jobs: int, *looks: Look) -> Trend:
        (fault,) = with_times(lasting(*looks), [replace(QUOTA, jobs=jobs)], 400.0)
        return fault.trend

    assert trend(3) is trend(9, *counts[:1]) is Trend.STEADY
    assert trend(5, *counts[:4]) is Trend.SHRINKING
    assert trend(5, *counts) is Trend.GROWING


def test_a_fault_is_named_with_the_one_that_began_just_before_it() -> None:
    known = lasting(at(0.0, QUOTA), at(250.0, QUOTA))
    breaks = Fault("health_check", "gpu", "", ("gpu",))
    other = Fault("capacity", "east X", "", ("cpu",))
    first, after, alone = with_times(known, [QUOTA, breaks, other], 260.0)
    assert [first.after, after.after, alone.after] == ["", "gpu: quota used up", ""]
    (late,) = with_times(known, [breaks], 601.0)
    assert late.after == ""


def test_a_fault_of_before_the_start_keeps_its_beginning_and_precedes_no_other_until_seen() -> None:
    known = {QUOTA.key: OpenFault(spell_of(QUOTA, 100.0), seen_at=300.0)}
    first, other = with_times(known, [QUOTA, replace(QUOTA, about="cpu")], 310.0)
    assert (first.since, first.trend, other.since, other.after) == (100.0, Trend.STEADY, 310.0, "")


def test_a_fault_that_has_recovered_does_not_begin() -> None:
    over = replace(QUOTA, recovered_at=50.0)
    assert with_times({}, [over], 60.0) == (over,)


def rows_give(*spells: FaultSpell) -> Sequence[FaultSpell]:
    return spells_of(map(row_of, spells))


def test_rows_give_the_faults_back_the_newest_first() -> None:
    ended = replace(spell_of(QUOTA, 10.0), ended=20.0, jobs=4)
    slow = spell_of(SLOW, 15.0)
    assert rows_give(replace(ended, ended=None), slow, ended) == [slow, ended]
    # The begin may be the later row: a store of another order, or a page that has lost it.
    assert rows_give(ended, replace(ended, ended=None)) == [ended]
    assert rows_give(ended) == [ended]
    (long,) = rows_give(replace(slow, message="x" * 1000))
    assert long.message == "x" * 300
